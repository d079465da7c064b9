package source

import "testing"

// A schedule that counts a loader's batches runs another way with more of them; one that
// counts optimizer steps, or epochs, does not.
func TestBatchSchedule(t *testing.T) {
	for text, want := range map[string]string{
		"import torch\ns = OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=2)":                            "OneCycleLR counts batches (steps_per_epoch=len(loader)) in line 2",
		"s = torch.optim.lr_scheduler.CosineAnnealingLR(\n    optimizer,\n    T_max=len(self.train_loader) * epochs)":    "CosineAnnealingLR counts batches (T_max=len(self.train_loader) * epochs) in line 1",
		"steps = len(train_dl) * epochs\nwarm = int(0.1 * steps)\ns = get_linear_schedule_with_warmup(opt, warm, steps)": "get_linear_schedule_with_warmup counts batches (warm) in line 3",
		"total = len(loader) // args.accum_steps\ns = OneCycleLR(optimizer, total_steps=total)":                          "",
		"s = OneCycleLR(optimizer, total_steps=math.ceil(len(loader) / args.gradient_accumulation_steps) * epochs)":      "",
		"s = CosineAnnealingLR(optimizer, T_max=args.epochs)\nprint(len(loader))":                                        "",
		"s = LambdaLR(optimizer, lambda step: 1 / (1 + step))\nn = len(dataset)":                                         "",
		"class OneCycleLR:\n    pass\ndef get_scheduler(optimizer, n):\n    return None\nn = len(loader)":                "",
		"# OneCycleLR(optimizer, steps_per_epoch=len(loader))\nx = len(loader)":                                          "",
	} {
		got := ""
		if s, found := BatchSchedule([]byte(text)); found {
			got = s.String() + " in line " + string(rune('0'+s.Line))
		}
		if got != want {
			t.Errorf("%s\n  found %q, want %q", text, got, want)
		}
	}
}
