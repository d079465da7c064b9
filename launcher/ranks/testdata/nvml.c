// A library with the functions of NVML that gpurun calls, and four GPUs:
//   0  works, and has had an Xid
//   1  belongs to somebody else
//   2  has fallen off the bus
//   3  is cut into two MIG instances, with a gap between them
// With ALONE, GPU 0 is the only one; with IDLE nobody is on it; with HOT heat holds it down,
// with SICK also errors of its memory, which has no spare rows left, and of its NVLinks.
// With CALM no alarm comes. With OLD it is the library of a driver that knows neither MIG nor the second
// form of the memory figures. Signatures and numbers are those of nvml.h.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999,
};

typedef unsigned long long u64;

typedef struct device {
	const char *uuid, *name;
	u64 total, reserved, used;
	int mig, index;
	unsigned instance;
	struct device *whole;
} device;

#ifdef IDLE
#define HELD 0
#define HOLDERS 0
#else
#define HELD (3ull << 30)
#define HOLDERS 2
#endif

static device gpus[4] = {
	{"GPU-zero", "NVIDIA H200", 150754820096, 600 << 20, HELD, 0, 0, 0, 0},
	{"GPU-one", "NVIDIA H200", 1, 0, 0, 0, 1, 0, 0},
	{"GPU-two", "NVIDIA H200", 1, 0, 0, 0, 2, 0, 0},
	{"GPU-three", "NVIDIA H200", 150754820096, 600 << 20, 0, 1, 3, 0, 0},
};
static device parts[3] = {
	{"MIG-a", "NVIDIA H200 MIG 1g.18gb", 18ull << 30, 0, 1 << 20, 0, 3, 7, &gpus[3]},
	{0},
	{"MIG-b", "NVIDIA H200 MIG 1g.18gb", 18ull << 30, 0, 2 << 20, 0, 3, 9, &gpus[3]},
};

static int initialised;

int nvmlInit_v2(void) { initialised++; return SUCCESS; }
int nvmlShutdown(void) { return initialised-- > 0 ? SUCCESS : UNKNOWN; }
const char *nvmlErrorString(int code) {
	switch (code) {
	case GPU_IS_LOST: return "GPU is lost";
	case NOT_FOUND: return "Not Found";
	}
	return "Some Error";
}

// The driver knows CUDA 11.8.
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 11080; return SUCCESS; }

#ifdef ALONE
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
#else
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return SUCCESS; }
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
	*d = &gpus[index];
	return index == 1 ? NO_PERMISSION : index == 2 ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device **d) {
	for (int i = 0; i < 7; i++) {
		*d = i < 4 ? &gpus[i] : &parts[i - 4];
		if ((*d)->uuid && !strcmp((*d)->uuid, uuid))
			return i == 2 ? GPU_IS_LOST : SUCCESS;
	}
	return NOT_FOUND;
}

static int copy(char *to, unsigned size, const char *from) {
	if (strlen(from) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return SUCCESS;
}

int nvmlDeviceGetUUID(device *d, char *uuid, unsigned size) {
	return d ? copy(uuid, size, d->uuid) : INVALID_ARGUMENT;
}
int nvmlDeviceGetName(device *d, char *name, unsigned size) { return copy(name, size, d->name); }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return copy(version, size, "520.61.05"); }

int nvmlDeviceGetMemoryInfo(device *d, u64 figures[3]) {
	figures[0] = d->total;
	figures[1] = d->total - d->reserved - d->used;
	figures[2] = d->reserved + d->used;
	return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
	*major = 9;
	*minor = 0;
	return d->whole ? NOT_SUPPORTED : SUCCESS;
}

#ifdef OLD

typedef struct { unsigned pid; u64 used; } process;
#define PROCESSES nvmlDeviceGetComputeRunningProcesses
#define GRAPHICS nvmlDeviceGetGraphicsRunningProcesses

#else

typedef struct { unsigned pid; u64 used; unsigned instance, compute; } process;
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v3
#define GRAPHICS nvmlDeviceGetGraphicsRunningProcesses_v3

int nvmlDeviceGetMemoryInfo_v2(device *d, struct { unsigned version; u64 total, reserved, free, used; } *m) {
	if (m->version != (sizeof *m | 2 << 24))
		return INVALID_ARGUMENT;
	m->total = d->total;
	m->reserved = d->reserved;
	m->used = d->used;
	m->free = d->total - d->reserved - d->used;
	return SUCCESS;
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
	*current = *pending = d->mig;
	return d->whole ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) {
	*count = d->mig ? 3 : 0;
	return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **part) {
	*part = &parts[index];
	return parts[index].uuid ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) {
	*id = d->instance;
	return d->whole ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *part, device **whole) {
	*whole = part->whole;
	return part->whole ? SUCCESS : INVALID_ARGUMENT;
}

#endif

#ifdef SICK
#define HOT
enum { COUNT = 2, ROWS = 1, FAILED = 1 };
#else
enum { COUNT = 0, ROWS = 0, FAILED = 0 };
#endif
#ifdef HOT
enum { SLOWED = 0x40 };
#else
enum { SLOWED = 0x1 }; // idle
#endif

#ifndef OLD
// Uncorrected errors since the driver was loaded are asked for, and no others. Where
// FAKE_NVML_AWAITS names a file, the answer comes once that is there.
int nvmlDeviceGetTotalEccErrors(device *d, int type, int counter, u64 *count) {
	const char *awaited = getenv("FAKE_NVML_AWAITS");
	for (int i = 0; awaited && access(awaited, F_OK) && i < 2000; i++)
		usleep(10000);
	*count = COUNT;
	return type == 1 && counter == 0 ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetRetiredPagesPendingStatus(device *d, int *pending) { return NOT_SUPPORTED; }
int nvmlDeviceGetRemappedRows(device *d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
	*correctable = 0;
	*uncorrectable = *pending = ROWS;
	*failed = FAILED;
	return d->whole ? NOT_SUPPORTED : SUCCESS;
}

// What the driver says that the GPU needs, as field 230.
typedef struct { unsigned id, scope; long long at, took; unsigned type, ret; union { unsigned ui; u64 ull; } value; } field;
int nvmlDeviceGetFieldValues(device *d, int count, field *f) {
	f->ret = count == 1 && f->id == 230 ? SUCCESS : NOT_SUPPORTED;
	f->value.ui = COUNT ? 4 : 0; // drain and reset
	return SUCCESS;
}

// Three links, of which one is down where the GPU is sick.
int nvmlDeviceGetNvLinkState(device *d, unsigned link, unsigned *active) {
	*active = !(COUNT && link == 1);
	return link < 3 && !d->whole ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetNvLinkErrorCounter(device *d, unsigned link, int counter, u64 *count) {
	*count = COUNT ? 3 : 0;
	return counter == 1 ? SUCCESS : INVALID_ARGUMENT;
}
typedef struct { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; } fabric;
int nvmlDeviceGetGpuFabricInfo(device *d, fabric *f) {
	f->state = 3; // completed
	f->status = COUNT ? UNKNOWN : SUCCESS;
	return SUCCESS;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; } place;
int nvmlDeviceGetPciInfo_v3(device *d, place *p) { strcpy(p->name, "00000000:4B:00.0"); return SUCCESS; }

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, u64 *reasons) { *reasons = SLOWED; return SUCCESS; }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) { *celsius = 41; return SUCCESS; }
#endif

// Two processes, more than the caller first has room for, one of them without a figure.
int PROCESSES(device *d, unsigned *count, process *p) {
	unsigned room = *count;
	*count = HOLDERS;
	if (room < HOLDERS)
		return INSUFFICIENT_SIZE;
	if (!HOLDERS)
		return SUCCESS;
	memset(p, 0, 2 * sizeof *p);
	p[0].pid = 4711;
	p[0].used = 2ull << 30;
	p[1].pid = 42;
	p[1].used = ~0ull;
	return SUCCESS;
}
int GRAPHICS(device *d, unsigned *count, process *p) { return NOT_SUPPORTED; }

typedef struct { device *device; u64 type, data; unsigned instance, compute; } event;

enum { DOUBLE_BIT = 2, XID = 8, CLOCK = 16 };

static event script[] = {
#ifndef CALM
	{&gpus[0], XID, 79, ~0u, ~0u},
	{&gpus[0], CLOCK, 0, ~0u, ~0u},
	{&gpus[3], DOUBLE_BIT, 0, 7, 0},
	{&gpus[3], DOUBLE_BIT, 0, 9, 0},
	{&gpus[3], XID, 94, ~0u, ~0u},
	{0, XID, 62, ~0u, ~0u},
#endif
};
static unsigned told, registered;

int nvmlEventSetCreate(void **set) { *set = script; return SUCCESS; }
int nvmlEventSetFree(void *set) { return set == script ? SUCCESS : INVALID_ARGUMENT; }
int nvmlDeviceGetSupportedEventTypes(device *d, u64 *types) {
	*types = DOUBLE_BIT | XID | CLOCK;
	return d->whole ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceRegisterEvents(device *d, u64 types, void *set) {
	registered++;
	return types == (DOUBLE_BIT | XID) && set == script ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlEventSetWait_v2(void *set, event *e, unsigned milliseconds) {
	if (!registered || set != script)
		return INVALID_ARGUMENT;
	if (told < sizeof script / sizeof *script) {
		*e = script[told++];
		return SUCCESS;
	}
#ifdef CALM
	usleep(milliseconds * 1000);
	return TIMEOUT;
#endif
	switch (told++ % 3) {
	case 0: usleep(milliseconds * 1000); return TIMEOUT;
	case 1: return GPU_IS_LOST;
	}
	return UNKNOWN;
}
