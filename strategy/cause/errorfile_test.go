package cause

import "testing"

func TestErrorFile(t *testing.T) {
	const callstack = `Traceback (most recent call last):\n  File \"/x/torch/distributed/elastic/multiprocessing/errors/__init__.py\", line 355, in wrapper\n    return f(*args, **kwargs)\n  File \"train.py\", line 9, in main\n    loss.backward()\n  File \"/x/torch/autograd/__init__.py\", line 200, in backward\n    Variable._execution_engine.run_backward(\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 79.15 GiB total capacity; 70.00 GiB already allocated; 1.00 GiB free; 72.00 GiB reserved in total by PyTorch)\n`
	text := `{"message": {"message": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "extraInfo": {"py_callstack": "` + callstack + `", "timestamp": "1700000000"}}}`
	s, at, ok := ErrorFile([]byte(text))
	if !ok || s.Code != CUDAOOM || s.Phase != Backward || !s.Raised || at.Unix() != 1700000000 {
		t.Errorf("got %+v at %s, %v", s, at, ok)
	}
	if s.Figures.Requested == nil || *s.Figures.Requested != 2<<30 {
		t.Errorf("figures %+v", s.Figures)
	}
	s, _, ok = ErrorFile([]byte(`{"message": "ValueError: bad", "timestamp": 17}`))
	if !ok || s.Code != UserError || s.Text != "ValueError: bad" {
		t.Errorf("got %+v, %v", s, ok)
	}
	if _, _, ok := ErrorFile([]byte("not json")); ok {
		t.Error("rubbish was taken for an error file")
	}
}
