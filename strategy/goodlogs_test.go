package strategy

import (
	"fmt"
	"strings"
)

// beginnings are lines with which launchers, schedulers, shells and frameworks begin a start.
// Names, paths and numbers are made up.
var beginnings = []string{
	"nohup: ignoring input\n",
	"$ python train.py --lr 1e-4\n",
	"(base) anna@gpu7:~/work$ torchrun --nproc_per_node 4 train.py\n",
	"+ srun python train.py --resume\n",
	"W0302 10:11:12.000000 140001 torch/distributed/run.py:792] \nW0302 10:11:12.000000 140001 torch/distributed/run.py:792] *****************************************\nW0302 10:11:12.000000 140001 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed. \nW0302 10:11:12.000000 140001 torch/distributed/run.py:792] *****************************************\n",
	"The following values were not passed to `accelerate launch` and had defaults used instead:\n\t`--num_processes` was set to a value of `4`\n",
	"[INFO] [runner.py:568:main] cmd = /usr/bin/python -u -m deepspeed.launcher.launch --world_info=e30= train.py\n",
	"srun: job 4711 queued and waiting for resources\nsrun: job 4711 has been allocated resources\n",
	"SLURM_JOB_ID=4711\nSLURM_JOB_NODELIST=n[1-2]\n",
	"GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\n",
	"I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.\n",
	"=============\n== PyTorch ==\n=============\n\nNVIDIA Release 26.02 (build 1234)\n",
	"***** Running training *****\n  Num examples = 1,000\n  Num Epochs = 3\n",
	"Mon Mar  2 10:11:12 UTC 2026\n+-----------------------------------------------------------------------------+\n| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |\n",
	"wandb: Tracking run with wandb version 0.19.1\nwandb: Run data is saved locally in /a/wandb/run-1\n",
	"Namespace(lr=0.0001, epochs=3, resume=None)\n",
	"using world size: 4, data-parallel size: 4, tensor-model-parallel size: 1\n",
	"Ultralytics 8.3.0 🚀 Python-3.10.12 torch-2.4.0 CUDA:0 (Tesla T4, 15102MiB)\n",
}

// repeated joins n lines that count from 1.
func repeated(n int, line func(i int) string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(line(i))
	}
	return b.String()
}

// goodLogs are the outputs of jobs that trained without a failure, in the forms of loops and
// frameworks.
var goodLogs = []struct{ name, log string }{
	{"prints", repeated(600, func(i int) string { return fmt.Sprintf("step %d/600 | loss %.4f\n", i, 2.0/float64(i)) })},
	{"prints, and its end", repeated(40, func(i int) string { return fmt.Sprintf("epoch %d: loss %.4f\n", i, 2.0/float64(i)) }) + "Training complete in 3m 12s\n"},
	{"a bar", repeated(120, func(i int) string {
		return fmt.Sprintf("\r%3d%%|███▌      | %d/120 [00:%02d<00:41, 2.87it/s, loss=%.3f]", i*100/120, i, i/3, 2.0/float64(i))
	}) + "\n"},
	{"transformers", "***** Running training *****\n  Num examples = 1,000\n" + repeated(60, func(i int) string {
		return fmt.Sprintf("{'loss': %.4f, 'grad_norm': 0.88, 'learning_rate': 9.6e-05, 'epoch': %.2f}\n\r%3d%%|███       | %d/60 [00:%02d<00:31,  1.67it/s]", 2.0/float64(i), float64(i)/20, i*100/60, i, i/2)
	}) + "\n{'train_runtime': 36.2, 'train_samples_per_second': 88.1, 'train_loss': 0.31, 'epoch': 3.0}\n"},
	{"Lightning", "GPU available: True (cuda), used: True\nLOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]\n" + repeated(30, func(i int) string {
		return fmt.Sprintf("\rEpoch %d: 100%%|██████████| 50/50 [00:11<00:00,  4.27it/s, v_num=3, train_loss=%.3f]", i-1, 2.0/float64(i))
	}) + "\n`Trainer.fit` stopped: `max_epochs=30` reached.\n"},
	{"Megatron", "using world size: 8, data-parallel size: 2\n" + repeated(100, func(i int) string {
		return fmt.Sprintf(" [2026-03-02 10:%02d:%02d] iteration %8d/     100 | consumed samples: %12d | elapsed time per iteration (ms): 412.3 | learning rate: 1.500E-04 | lm loss: %.6E | grad norm: 0.482 |\n", 12+i/60, i%60, i, i*512, 2.0/float64(i))
	})},
	{"a logger", repeated(200, func(i int) string {
		return fmt.Sprintf("2026-03-02 11:%02d:%02d,123 - INFO - train - epoch 1 step %d loss %.4f\n", i/60, i%60, i, 2.0/float64(i))
	})},
	{"torchrun", beginnings[4] + repeated(80, func(i int) string {
		return fmt.Sprintf("[default%d]:step %d loss %.4f\n", i%2, (i+1)/2, 2.0/float64(i))
	})},
	{"Keras", repeated(5, func(e int) string {
		return fmt.Sprintf("Epoch %d/5\n", e) + repeated(20, func(i int) string {
			return fmt.Sprintf("\r%d/20 [=====>........] - ETA: 3s - loss: %.4f", i, 2.0/float64(i*e))
		}) + "\n"
	})},
	{"Ultralytics", "Ultralytics 8.3.0 🚀 Python-3.10.12 torch-2.4.0 CUDA:0 (Tesla T4, 15102MiB)\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n" + repeated(30, func(i int) string {
		return fmt.Sprintf("      %d/30      2.17G      1.%03d      2.1%02d      1.201         88        640: 100%%|██████████| 8/8 [00:01<00:00,  6.12it/s]\n", i, 900-i, 90-i)
	}) + "\n30 epochs completed in 0.021 hours.\n"},
	{"fairseq", repeated(50, func(i int) string {
		return fmt.Sprintf("2026-03-02 12:%02d:00 | INFO | train_inner | epoch 001:    %d / 500 loss=%.3f, nll_loss=6.7, ppl=107.2, wps=9999, lr=1e-05\n", i, i*10, 9.0/float64(i))
	})},
	{"numbers without a word", repeated(600, func(i int) string { return fmt.Sprintf("[%d/600] acc=0.%04d\n", i, 1000+i) })},
	{"accelerate", beginnings[5] + repeated(100, func(i int) string {
		return fmt.Sprintf("\rSteps: %3d%%|███       | %d/100 [00:%02d<00:31,  1.67it/s, lr=1e-5, step_loss=0.0%d]", i, i, i/2, 100+i)
	}) + "\n"},
	{"Slurm", "Job 4711 starts on n1\nSLURM_JOB_ID=4711\n" + repeated(100, func(i int) string {
		return fmt.Sprintf("iter %d: loss %.4f, time 412.21ms, mfu 31.2%%\n", i, 2.0/float64(i))
	})},
	{"a shell", "anna@gpu7:~/work$ python train.py\nLoading data ...\n" + repeated(50, func(i int) string {
		return fmt.Sprintf("Train Epoch: 1 [%d/3200 (%d%%)]\tLoss: %.6f\n", i*64, i*2, 2.0/float64(i))
	}) + "anna@gpu7:~/work$ \n"},
	{"epochs", "Using device: cuda\n" + repeated(250, func(i int) string {
		return fmt.Sprintf("Epoch %03d | train %.4f | valid %.4f | 12.3s\n", i, 2.0/float64(i), 2.1/float64(i))
	})},
}
