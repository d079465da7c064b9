package cause

import (
	"path"
	"slices"
	"strings"
)

// A frame is one call of a traceback.
type frame struct {
	file, function string
	// op: the frame is the forward of a torch.autograd.Function, whose first parameter is ctx.
	op bool
}

// A phaseTracker folds the frames of a traceback, outermost first, into a phase.
type phaseTracker struct {
	phase  Phase // the phase by the innermost meaningful frame
	firm   bool  // phase is the purpose of the call: frames within it do not change it
	guess  bool  // phase was read off source code, no frame confirms it
	data   bool  // within a data loader: the code there is no part of a training step
	maybe  Phase // the phase that an ambiguous name suggests, if computing follows
	pinned bool  // within the loader's pin_memory
	pins   bool  // the last frame's source line requests pinned memory
	shared bool  // within the sharing of memory between processes
	torn   bool  // the outermost frames are missing
	op     bool  // within a single operation, and no frame shows its caller
	noGrad bool  // the last frame is torch's wrapper for code without gradients
	// collective: a frame is in torch.distributed's collectives.
	collective bool
}

// result is the phase by the frames; NoPhase if they do not show one.
func (t *phaseTracker) result() Phase {
	switch {
	case t.data || t.phase == "":
		return NoPhase
	case t.maybe != "" && (t.phase == Forward):
		return t.maybe
	}
	return t.phase
}

// suggestion is the phase by an ambiguous name if nothing else shows one.
func (t *phaseTracker) suggestion() Phase {
	if t.data || t.phase != "" || t.maybe == "" {
		return NoPhase
	}
	return t.maybe
}

// add adds the next frame, one level further in.
func (t *phaseTracker) add(f frame) {
	t.pins = false
	t.pinned = t.pinned || strings.Contains(f.file, "pin_memory") || f.function == "pin_memory"
	t.shared = t.shared ||
		contains(f.file, []string{"multiprocessing/shared_memory.py", "multiprocessing/heap.py",
			"multiprocessing/synchronize.py", "torch/multiprocessing/reductions.py"})
	t.data = t.data || strings.Contains(f.file, "torch/utils/data/") || f.function == "__getitem__" &&
		!strings.Contains(f.file, "/torch/")
	t.collective = t.collective || stage(f) == Collective
	if t.firm {
		return
	}
	within := t.noGrad
	t.noGrad = f.function == "decorate_context"
	if p := purpose(f); p != "" {
		t.phase, t.firm = p, true
		return
	}
	if within && measures(f.function) {
		t.phase, t.firm = Eval, true
		return
	}
	if trains(f.function) {
		t.maybe = ""
	}
	if f.op && t.torn && t.phase == "" {
		t.op = true // training, evaluation and a recomputation enter it in the same way
	}
	if t.op && stage(f) == Forward {
		return
	}
	if suggestsEval(f) {
		t.maybe = Eval
	} else if t.maybe == "" && (suggestsRollout(f) || t.phase == "" &&
		strings.Contains(f.file, "/transformers/generation/")) {
		t.maybe = Rollout
	}
	if p := stage(f); p != "" {
		t.compute(p)
		t.guess = false
	}
}

// source reads a line of source code of the last frame. Generated code of torch.compile names its
// inputs: tangents_ only exist in a backward graph, primals_ in both.
func (t *phaseTracker) source(code string) {
	t.pins = strings.Contains(code, "pin_memory=True") || strings.Contains(code, ".pin_memory(")
	if t.firm {
		return
	}
	switch {
	case strings.Contains(code, "tangents_"):
		t.compute(Backward)
	case strings.Contains(code, "primals_"):
		t.compute(Forward)
	default:
		if p := calls(code); p != "" && p != t.phase {
			t.compute(p)
			t.guess = true
		}
	}
}

// compute changes the phase to that of an inner frame. A forward call within a backward one is a
// recomputation (activation checkpointing), but one below the source line
// "loss(model(x)).backward()" is not. Load and Collective count only if nothing else is known: a
// job may build its model in any phase.
func (t *phaseTracker) compute(p Phase) {
	switch {
	case p == "":
	case p == Forward && t.phase == Backward && !t.guess:
	case (p == Load || p == Collective) && t.phase != "":
	default:
		t.phase = p
	}
}

// purpose is the phase that a caller's frame determines, whatever runs within: evaluation runs
// forward, saving gathers, loading may run a dummy forward.
func purpose(f frame) Phase {
	name := f.function
	file := strings.ReplaceAll(f.file, "\\", "/")
	base := path.Base(file)
	switch {
	case slices.Contains(evalNames, name),
		slices.Contains([]string{"val.py", "validate.py", "evaluate.py", "evaluator.py", "evaluation.py", "eval.py"}, base):
		return Eval
	case slices.Contains(saveNames, name), strings.HasPrefix(name, "save_") && name != "save_for_backward" &&
		name != "save_on_cpu",
		strings.HasPrefix(name, "_save_"), name == "save" && base == "serialization.py",
		strings.Contains(name, "_save_") && !contains(name, []string{"eval", "should"}), // safe_save_model_for_hf_trainer
		strings.HasSuffix(file, "distributed/fsdp/_state_dict_utils.py") && !strings.Contains(name, "load"):
		return Save
	case generates(file, name):
		return Rollout
	case strings.HasPrefix(name, "load_fsdp_"), strings.HasPrefix(name, "load_megatron_"):
		return "" // verl moves states back to the device in every step
	case slices.Contains(loadNames, name), strings.HasPrefix(name, "_load_"), strings.HasPrefix(name, "load_"):
		return Load
	case name == "initialize" && strings.Contains(file, "deepspeed"),
		name == "__init__" && contains(file, []string{"deepspeed/runtime/", "/optim/", "apex/optimizers"}):
		return Load
	}
	return ""
}

// Names of functions that determine a phase, by library.
var (
	evalNames = []string{
		// transformers, accelerate examples
		"evaluate", "evaluation_loop", "prediction_loop", "prediction_step", "eval_step", "eval_epoch", "run_eval",
		// Lightning
		"validate", "validation", "validation_step", "validation_loop", "test_step", "_run_validation", "_run_sanity_check",
		"_run_evaluate", "_evaluation_step",
		// scripts' own
		"estimate_loss", "estimate_val_loss", "compute_val_loss", "evaluate_model", "validate_model", "evaluate_one_epoch",
		"validate_one_epoch",
		"eval_one_epoch", "val_one_epoch", "valid_one_epoch", "test_one_epoch", "valid_epoch", "valid_step",
		"run_validation", "run_evaluation", "do_validation",
		"evaluate_and_print_results", "simple_evaluate", "_eval_loop", "eval_loop", "eval_forward", "inference_on_dataset",
		"val_epoch", "val_step", "validate_epoch", "test_epoch",
	}
	saveNames = []string{
		"save_checkpoint", "save_pretrained", "save_model", "save_state", "_save", "_save_checkpoint", "dump_checkpoint",
		"save_16bit_model", "consolidate_state_dict", "_zero3_consolidated_16bit_state_dict", "async_save", "full_state_dict",
	}
	loadNames = []string{
		"from_pretrained", "from_config", "init_model", "init_workers", "load", "set_module_tensor_to_device",
		"dispatch_model",
		"initialize_optimizer_states", "prepare_model", "_prepare_deepspeed", "_prepare_fsdp", "prepare",
		"setup_model_and_optimizer", "get_model", "build_model",
		"_zero_init_param", "init_process_group", "init_distributed", "_sync_module_states", "_sync_params_and_buffers",
		"__deepcopy__", "reset_parameters",
		"profile_run", "determine_num_available_blocks", "determine_available_memory", "initialize_cache", "capture_model",
		"init_device", "warmup_model",
		"broadcast_params", "_broadcast_model",
	}
)

// rolloutNames are functions of RL frameworks, and of the engines that they run beside the training:
// verl, OpenRLHF, TRL, vLLM and SGLang. Those of engines count in the engines' files only.
var (
	rolloutNames = []string{
		"generate_sequences", "actor_rollout_generate_sequences", "_generate_minibatch", "generate_rollouts",
		"generate_rollout", "do_rollout",
		"rollout", "_rollout", "make_experience", "make_experience_list", "make_experience_batch", "generate_samples",
		"_generate_vllm",
		"wake_up", "resume_memory_occupation",
	}
	engineNames = []string{
		"generate", "_generate", "_run_engine", "step", "step_with_batch_queue", "_process_engine_step", "run_busy_loop",
		"execute_model", "sample_tokens",
		"event_loop_normal", "event_loop_overlap", "run_batch", "forward_batch_generation", "async_generate",
	}
	engineFiles = []string{"/vllm/", "/sglang/", "/lmdeploy/"}
)

// generates reports whether a function generates samples, whatever runs within.
func generates(file, name string) bool {
	return slices.Contains(rolloutNames, name) || slices.Contains(engineNames, name) && contains(file, engineFiles)
}

// suggestsRollout reports a name that may mean generation by the model: it counts only if a model computes within.
func suggestsRollout(f frame) bool {
	return slices.Contains([]string{"generate", "_generate", "generate_completions"}, f.function)
}

// suggestsEval reports a name that may mean evaluation of a model: it counts only if a model
// computes within.
func suggestsEval(f frame) bool {
	name := strings.TrimLeft(f.function, "_")
	if name == "evaluate_actions" {
		return false // a policy's forward, in training
	}
	return strings.HasPrefix(name, "evaluate") || strings.HasPrefix(name, "eval_") || strings.HasPrefix(name, "validat") ||
		strings.Contains(name, "_validation") || strings.HasPrefix(name, "do_eval") ||
		slices.Contains([]string{"eval", "predict", "test", "val", "valid", "infer", "inference", "test_loop", "val_loop",
			"valid_loop", "test_model"}, name)
}

// measures reports whether a function under torch.no_grad or torch.inference_mode evaluates a
// model, by its name. Optimizers, averages and generation in training have such wrappers, too.
func measures(name string) bool {
	return contains(name, []string{"eval", "val", "test", "infer", "predict", "estimate", "accuracy", "metric",
		"perplexity", "score"}) &&
		!contains(name, []string{"update", "value", "interval"})
}

func trains(name string) bool {
	return name == "fit" || name == "train" || strings.HasPrefix(name, "train_") || strings.HasSuffix(name, "_train") ||
		name == "training_step"
}

// stage is the phase of a frame by itself.
func stage(f frame) Phase {
	name := f.function
	file := strings.ReplaceAll(f.file, "\\", "/")
	switch {
	case name == "backward", name == "_engine_run_backward", name == "run_backward",
		strings.HasSuffix(file, "torch/autograd/__init__.py") && name == "grad":
		return Backward
	case name == "training_step", name == "compute_loss", name == "closure",
		(name == "loss" || strings.HasPrefix(name, "loss_")) && strings.Contains(file, "/mmdet/"):
		return Forward
	case isOptimizer(file, name):
		return Optimizer
	case strings.Contains(file, "torch/nn/modules/module.py") &&
		slices.Contains([]string{"to", "cuda", "_apply", "convert", "half", "float", "bfloat16", "type", "<lambda>"}, name):
		return Load
	case name == "__init__" && buildsModel(file), name == "measure" && strings.Contains(file, "vllm/"):
		return Load
	case strings.Contains(name, "forward"), name == "_call_impl", name == "_wrapped_call_impl", name == "cross_entropy",
		strings.HasSuffix(file, "torch/nn/functional.py"), strings.Contains(file, "/attention/"), strings.Contains(file,
			"/loss/"):
		return Forward
	case strings.HasSuffix(file, "torch/distributed/distributed_c10d.py"):
		return Collective
	}
	return ""
}

// buildsModel reports whether a constructor in the file can belong to a model or an engine: the
// file is the job's own code, or belongs to a library with models.
func buildsModel(file string) bool {
	_, inside, library := strings.Cut(file, "-packages/")
	if !library {
		return !strings.Contains(file, "/lib/python") // the standard library
	}
	return !hasPrefix(inside, []string{"torch/distributions/", "torch/utils/", "numpy/", "numba", "cupy/", "jax/",
		"tqdm/", "pandas/", "PIL/",
		"wandb/", "ray/", "datasets/", "tensorboard", "scipy/", "sklearn/"})
}

// isOptimizer recognises the steps of the optimizers of PyTorch, DeepSpeed, apex, bitsandbytes,
// FairScale and Megatron, on the GPU or offloaded.
func isOptimizer(file, name string) bool {
	if slices.Contains([]string{"optimizer_step", "_optimizer_step", "_take_model_step", "_unscale_grads_",
		"clip_grad_norm_", "step_with_ready_grads"}, name) {
		return true
	}
	if strings.Contains(file, "torch/optim/lr_scheduler.py") && name != "wrapper" {
		return false
	}
	return contains(file, []string{"/optim/", "apex/optimizers", "deepspeed/ops/adam"}) ||
		name == "step" && contains(file, []string{"optim", "deepspeed/runtime/", "grad_scaler"})
}

// calledPhases are the calls in source code that enter a phase.
var calledPhases = []struct {
	phase Phase
	calls []string
}{
	{Backward, []string{".backward(", "run_backward("}},
	{Optimizer, []string{"optimizer.step(", "optim.step(", "scaler.step("}},
	{Load, []string{"model.to(", "model.cuda("}},
	{Save, []string{"torch.save(", "save_checkpoint(", ".save_pretrained("}},
}

// calls is the phase that a line of source code is about to enter; empty: none.
func calls(code string) Phase {
	for _, p := range calledPhases {
		if contains(code, p.calls) {
			return p.phase
		}
	}
	return ""
}
