/* What a container on a shared GPU can do: it opens the device that it is told of, takes nine tenths of its part of the memory, says so in one
 * line, and keeps it until it is told to end. It needs no CUDA toolkit: the driver's library is loaded when it runs.
 *   cc -O -o cuda cuda.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *lib;

static void *entry(const char *name) {
	void *f = dlsym(lib, name);
	if (!f) {
		printf("failed: the driver has no %s\n", name);
		exit(1);
	}
	return f;
}

#define CALL(name, types, args) do { \
	int ret = ((int (*) types)entry(#name)) args; \
	if (ret) { printf("failed: %s says %d\n", #name, ret); return 1; } \
} while (0)

int main(void) {
	const char *told = getenv("NVIDIA_VISIBLE_DEVICES"), *portion = getenv("GPU_PORTION");
	int count = 0, device = 0;
	unsigned char u[16];
	size_t total = 0, take;
	void *context = NULL;
	unsigned long long memory = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!told || !portion) {
		printf("failed: told of no device, or of no part\n");
		return 1;
	}
	setenv("CUDA_VISIBLE_DEVICES", told, 1);
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		printf("failed: %s\n", dlerror());
		return 1;
	}
	CALL(cuInit, (unsigned), (0));
	CALL(cuDeviceGetCount, (int *), (&count));
	CALL(cuDeviceGet, (int *, int), (&device, 0));
	CALL(cuDeviceGetUuid, (void *, int), (u, device));
	CALL(cuDeviceTotalMem_v2, (size_t *, int), (&total, device));
	CALL(cuDevicePrimaryCtxRetain, (void **, int), (&context, device));
	CALL(cuCtxSetCurrent, (void *), (context));
	take = (size_t)(0.9 * atof(portion) * (double)total);
	CALL(cuMemAlloc_v2, (unsigned long long *, size_t), (&memory, take));
	printf("devices %d first GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x total %zu taken %zu\n", count,
		u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15], total >> 20, take >> 20);
	for (;;)
		pause();
}
