//go:build linux && cgo

package ranks

// These checks run before Go starts, in a C constructor, in gpurun and in its guards. ranksout enough threads
// or address space Go's runtime would end the process with a stack trace and exit code 2.

/*
#cgo LDFLAGS: -lpthread
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// The number of threads of gpurun and of a guard process, and the address space that Go reserves.
enum { THREADS = 20, GUARD_THREADS = 8 };
static const size_t RESERVED = (size_t)7 << 28;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *unused) {
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return unused;
}

static void refuse(int code, const char *error, const char *hint) {
	fprintf(stderr, "gpurun: error: %s\ngpurun: hint: %s\n", error, hint);
	fflush(stderr);
	_exit(code);
}

static void check_address_space(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return;
	void *reserved = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		refuse(2, "the address space is limited (ulimit -v, RLIMIT_AS) to less than gpurun reserves", "raise it: ulimit -v unlimited");
	munmap(reserved, RESERVED);
}

static void check_threads(void) {
	struct rlimit limit;
	pthread_attr_t attributes;
	pthread_t threads[THREADS];
	int wanted = getenv("GRD_LINK") ? GUARD_THREADS : THREADS, started = 0, failed = 0;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	pthread_mutex_lock(&gate);
	while (started < wanted && (failed = pthread_create(&threads[started], &attributes, wait_at_gate, NULL)) == 0)
		started++;
	pthread_mutex_unlock(&gate);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attributes);
	if (failed == 0)
		return;
	if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur < 2 * THREADS)
		refuse(2, "the number of processes is limited (ulimit -u, RLIMIT_NPROC) to less than gpurun has threads", "raise it: ulimit -u");
	refuse(75, "this user or this container cannot start more processes or threads",
		"end some, or raise the limit: see ulimit -u, and pids.max of the cgroup");
}

__attribute__((constructor)) static void check_limits(void) {
	check_address_space();
	check_threads();
}
*/
import "C"
