/* NVML, as libnvidia-ml.so.1: torch counts devices by it where CUDA must not be touched. */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <stdio.h>
#include <string.h>

enum { INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, HANDLE = 0x10 };

/* NVML knows no CUDA_VISIBLE_DEVICES. */
static int number(void *device) {
  uintptr_t i = (uintptr_t)device - HANDLE;
  return i < (uintptr_t)stub_target()->devices ? (int)i : -1;
}

STUB_API(int, nvmlInit, void) { return STUB_OK; }
STUB_API(int, nvmlInit_v2, void) { return STUB_OK; }
STUB_API(int, nvmlInitWithFlags, unsigned flags) { return STUB_OK; }
STUB_API(int, nvmlShutdown, void) { return STUB_OK; }
STUB_API(const char *, nvmlErrorString, int code) {
  return code == STUB_OK         ? "Success"
         : code == INVALID       ? "Invalid Argument"
         : code == NOT_SUPPORTED ? "Not Supported"
         : code == NOT_FOUND     ? "Not Found"
                                 : "Unknown Error";
}
STUB_API(int, nvmlDeviceGetCount, unsigned *count) {
  *count = (unsigned)stub_target()->devices;
  return STUB_OK;
}
STUB_API(int, nvmlDeviceGetCount_v2, unsigned *count) { return stub_nvmlDeviceGetCount(count); }
STUB_API(int, nvmlDeviceGetHandleByIndex, unsigned index, void **device) {
  *device = (void *)(uintptr_t)(HANDLE + index);
  return number(*device) < 0 ? INVALID : STUB_OK;
}
STUB_API(int, nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device) {
  return stub_nvmlDeviceGetHandleByIndex(index, device);
}
STUB_API(int, nvmlDeviceGetHandleByPciBusId_v2, const char *text, void **device) {
  unsigned domain, bus, slot;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return INVALID;
  *device = (void *)(uintptr_t)(HANDLE + bus - 1);
  return number(*device) < 0 ? NOT_FOUND : STUB_OK;
}
STUB_API(int, nvmlDeviceGetHandleByUUID, const char *uuid, void **device) {
  char text[48];
  for (int i = 0; i < stub_target()->devices; i++) {
    stub_uuid_text(i, text, sizeof text);
    if (strcmp(uuid, text)) continue;
    *device = (void *)(uintptr_t)(HANDLE + i);
    return STUB_OK;
  }
  return NOT_FOUND;
}
STUB_API(int, nvmlDeviceGetName, void *device, char *name, unsigned size) {
  snprintf(name, size, "%s", stub_target()->name);
  return number(device) < 0 ? INVALID : STUB_OK;
}
STUB_API(int, nvmlDeviceGetUUID, void *device, char *text, unsigned size) {
  if (number(device) < 0) return INVALID;
  stub_uuid_text(number(device), text, size);
  return size < 41 ? SMALL : STUB_OK;
}
STUB_API(int, nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor) {
  *major = stub_value(75);
  *minor = stub_value(76);
  return number(device) < 0 ? INVALID : STUB_OK;
}
struct memory {
  unsigned long long total, free, used;
};
STUB_API(int, nvmlDeviceGetMemoryInfo, void *device, struct memory *memory) {
  /* What a process of this one has allocated, another library cannot see. */
  memory->total = memory->free = stub_target()->memory;
  memory->used = 0;
  return number(device) < 0 ? INVALID : STUB_OK;
}
STUB_API(int, nvmlDeviceGetComputeRunningProcesses, void *device, unsigned *count) {
  *count = 0;
  return STUB_OK;
}
STUB_API(int, nvmlDeviceGetComputeRunningProcesses_v3, void *device, unsigned *count) {
  *count = 0;
  return STUB_OK;
}
STUB_API(int, nvmlSystemGetCudaDriverVersion, int *version) {
  *version = stub_target()->driver;
  return STUB_OK;
}
STUB_API(int, nvmlSystemGetCudaDriverVersion_v2, int *version) {
  *version = stub_target()->driver;
  return STUB_OK;
}
/* Links between GPUs are not reported. torch looks these functions up with the others. */
STUB_API(int, nvmlDeviceGetNvLinkRemoteDeviceType, void *device) { return NOT_SUPPORTED; }
STUB_API(int, nvmlDeviceGetNvLinkRemotePciInfo_v2, void *device) { return NOT_SUPPORTED; }
STUB_API(int, nvmlDeviceGetP2PStatus, void *device, void *other, int kind, int *status) {
  *status = 5; /* NVML_P2P_STATUS_NOT_SUPPORTED */
  return STUB_OK;
}
/* A structure whose first field holds its size in the lower bytes; all zero is "not supported". */
STUB_API(int, nvmlDeviceGetGpuFabricInfoV, void *device, unsigned *info) {
  unsigned size = *info & 0xffffff;
  if (size < sizeof *info || size > 4096) return INVALID;
  memset(info + 1, 0, size - sizeof *info);
  return number(device) < 0 ? INVALID : STUB_OK;
}
