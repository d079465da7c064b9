// Uses a GPU in one of two ways: "hold BYTES" takes memory and keeps it until its
// standard input ends, "fault" writes where nothing is mapped.

#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void fault(int *nowhere) { *nowhere = 1; }

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "hold")) {
		void *p;
		if (cudaMalloc(&p, strtoull(argv[2], nullptr, 10)) != cudaSuccess)
			return 1;
		puts("held");
		fflush(stdout);
		while (getchar() != EOF) {
		}
		return 0;
	}
	fault<<<1, 1>>>((int *)0x10);
	return cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 0 : 1;
}
