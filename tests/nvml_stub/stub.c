/* A libnvidia-ml.so.1 without any hardware, for tests of what asks it.
 *
 * The file named by NVML_STUB holds `key=value` lines:
 *
 *   driver=580.95.05          library=13.580.95.05     cuda=13000
 *   init=18                   an NVML error number as the answer of nvmlInit
 *   fail.count=999            the same for a question about the system
 *   gpus=8                    how many GPUs there are
 *   gpu.3.name=NVIDIA H100    a field of a GPU: name major minor total free mig migs uuid bus
 *                             compute_mode persistence compute_pids graphics_pids
 *   fail.3.memory=3           an NVML error number for a question about GPU 3
 *   hang=3.memory             a question that never returns and ignores SIGTERM: init, count,
 *                             3.handle, 3.memory, ...
 *   crash=init                a question that ends the process with SIGABRT
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, INVALID = 2 };

static char text[1 << 16];

static const char *get(const char *key, char *value, size_t size, const char *otherwise) {
    if (!text[0]) {
        const char *path = getenv("NVML_STUB");
        FILE *file = path ? fopen(path, "rb") : NULL;
        size_t length = file ? fread(text + 1, 1, sizeof text - 2, file) : 0;
        text[0] = '\n';
        text[length + 1] = 0;
        if (file) fclose(file);
    }
    char wanted[128];
    snprintf(wanted, sizeof wanted, "\n%s=", key);
    const char *found = strstr(text, wanted);
    if (!found) {
        snprintf(value, size, "%s", otherwise);
        return value;
    }
    found += strlen(wanted);
    size_t length = strcspn(found, "\n");
    if (length >= size) length = size - 1;
    memcpy(value, found, length);
    value[length] = 0;
    return value;
}

static long long number(const char *key, long long otherwise) {
    char value[64];
    get(key, value, sizeof value, "");
    return value[0] ? atoll(value) : otherwise;
}

/* The answer that the settings demand for a question, which may be no answer at all. */
static int answer(const char *question) {
    char value[128], key[128];
    if (!strcmp(get("hang", value, sizeof value, ""), question)) {
        signal(SIGTERM, SIG_IGN);
        for (;;) sleep(1000);
    }
    if (!strcmp(get("crash", value, sizeof value, ""), question)) abort();
    snprintf(key, sizeof key, "fail.%s", question);
    return (int)number(key, SUCCESS);
}

/* A device handle is the GPU's number plus one; that of a MIG instance adds 1000 for each. */
#define GPU(handle) ((int)((long)(handle)-1) % 1000)

static int ask(void *handle, const char *question) {
    char name[64];
    snprintf(name, sizeof name, "%d.%s", GPU(handle), question);
    return answer(name);
}

static long long field(void *handle, const char *name, long long otherwise) {
    char key[64];
    snprintf(key, sizeof key, "gpu.%d.%s", GPU(handle), name);
    return number(key, otherwise);
}

static int words(void *handle, const char *name, const char *otherwise, char *out, unsigned size) {
    char key[64], value[512];
    snprintf(key, sizeof key, "gpu.%d.%s", GPU(handle), name);
    get(key, value, sizeof value, otherwise);
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int result = answer("init");
    return result ? result : (int)number("init", SUCCESS);
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) {
    switch (result) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 11: return "Interrupt Request Issue";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    get("library", out, size, "13.580.95.05");
    return answer("library_version");
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    get("driver", out, size, "580.95.05");
    return answer("driver_version");
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    *out = (int)number("cuda", 13000);
    return answer("cuda");
}

int nvmlSystemGetCudaDriverVersion(int *out) {
    *out = (int)number("cuda", 13000);
    return answer("cuda_v1");
}

int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = (unsigned)number("gpus", 1);
    return answer("count");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= (unsigned)number("gpus", 1)) return INVALID;
    *out = (void *)(long)(index + 1);
    return ask(*out, "handle");
}

int nvmlDeviceGetName(void *gpu, char *out, unsigned size) {
    int result = ask(gpu, "name");
    return result ? result : words(gpu, "name", "NVIDIA H100 80GB HBM3", out, size);
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    *major = (int)field(gpu, "major", 9);
    *minor = (int)field(gpu, "minor", 0);
    return ask(gpu, "compute_capability");
}

int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    char value[96];
    if ((long)gpu > 1000) {
        snprintf(out, size, "MIG-%08d-0000-0000-0000-%012ld", GPU(gpu), (long)gpu / 1000 - 1);
        return SUCCESS;
    }
    snprintf(value, sizeof value, "GPU-%08d-1111-2222-3333-444444444444", GPU(gpu));
    int result = ask(gpu, "uuid");
    return result ? result : words(gpu, "uuid", value, out, size);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *gpu, struct pci *out) {
    char value[32];
    memset(out, 0, sizeof *out);
    snprintf(value, sizeof value, "00000000:%02X:00.0", GPU(gpu) + 1);
    int result = ask(gpu, "pci_bus_id");
    return result ? result : words(gpu, "bus", value, out->bus_id, sizeof out->bus_id);
}

struct memory {
    unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out) {
    out->total = (unsigned long long)field(gpu, "total", 85520809984LL);
    out->free = (unsigned long long)field(gpu, "free", 84904247296LL);
    out->used = out->total - out->free;
    return ask(gpu, "memory");
}

int nvmlDeviceGetComputeMode(void *gpu, unsigned *out) {
    *out = (unsigned)field(gpu, "compute_mode", 0);
    return ask(gpu, "compute_mode");
}

int nvmlDeviceGetPersistenceMode(void *gpu, unsigned *out) {
    *out = (unsigned)field(gpu, "persistence", 1);
    return ask(gpu, "persistence");
}

int nvmlDeviceGetMigMode(void *gpu, unsigned *current, unsigned *pending) {
    long long mode = field(gpu, "mig", -1);
    *current = *pending = (unsigned)mode;
    return mode < 0 ? NOT_SUPPORTED : ask(gpu, "mig_mode");
}

int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned *out) {
    *out = 7;
    return ask(gpu, "mig_uuids");
}

/* Instances fill the slots from the last one down, so that the first may be a hole. */
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **out) {
    if (index < 7 - field(gpu, "migs", 0)) return NOT_FOUND;
    *out = (void *)((long)gpu + 1000L * (index + 1));
    return SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static int processes(void *gpu, const char *kind, unsigned *count, struct process *out) {
    char value[256];
    unsigned found = 0;
    int result = ask(gpu, kind);
    if (result) return result;
    words(gpu, kind, "", value, sizeof value);
    for (char *one = strtok(value, ","); one; one = strtok(NULL, ",")) {
        if (out && found < *count) {
            memset(&out[found], 0, sizeof out[found]);
            out[found].pid = (unsigned)atoi(one);
        }
        found++;
    }
    unsigned room = *count;
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out) {
    return processes(gpu, "compute_pids", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *gpu, unsigned *count, struct process *out) {
    return processes(gpu, "graphics_pids", count, out);
}
