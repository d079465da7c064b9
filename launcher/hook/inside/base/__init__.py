# Below all: this process and its files, the wall between the job and the hook, words, figures of memory.
