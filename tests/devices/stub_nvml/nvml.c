/* A stand-in for libnvidia-ml.so.1 that lets the real Python binding run without a GPU.
 *
 * What it answers is in the text file named by STUB_NVML_STATE, read again at every call:
 *
 *   init_error CODE                          nvmlInit fails
 *   gpu INDEX UUID TOTAL RESERVED USED MIG   bytes; MIG 0 or 1; the name is "Stub GPU INDEX"
 *   link INDEX INDEX                         the two cards reach each other over NVLink
 *   proc LIST INDEX PID BYTES                LIST compute, graphics or mps; BYTES -1 = not told
 *   busy INDEX PERCENT                       the card's utilisation; without it the call is not supported
 *   sample INDEX PID TIME PERCENT            a process used the card's cores; TIME in microseconds
 *   error INDEX FUNCTION CODE                that call answers CODE for that card
 *
 * Only what the pool calls is here; the structures are those of NVML's public interface.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, BAD_VERSION = 25, MAX_CARDS = 16 };

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; u64 time; unsigned cores, memory, encoder, decoder; } sample;

typedef struct { int present, mig; char uuid[96]; u64 total, reserved, used; } gpu;

static char handles[MAX_CARDS]; /* a handle is the address of one of these */

static int index_of(void *handle) { return (int)((char *)handle - handles); }

static FILE *state(void) {
    const char *path = getenv("STUB_NVML_STATE");
    return path ? fopen(path, "r") : NULL;
}

static gpu find(int wanted) {
    gpu found = {0}, one;
    char line[512];
    int index;
    FILE *file = state();
    while (file && fgets(line, sizeof line, file)) {
        memset(&one, 0, sizeof one);
        if (sscanf(line, "gpu %d %95s %llu %llu %llu %d", &index, one.uuid, &one.total, &one.reserved,
                   &one.used, &one.mig) == 6 && index == wanted) {
            found = one;
            found.present = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static int error_of(int index, const char *function) {
    char line[512], name[128];
    int card, code, found = OK;
    FILE *file = state();
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "error %d %127s %d", &card, name, &code) == 3 && card == index && !strcmp(name, function))
            found = code;
    if (file) fclose(file);
    return found;
}

#define REFUSE_IF_ASKED(handle)                              \
    do {                                                     \
        int code = error_of(index_of(handle), __func__);     \
        if (code) return code;                               \
    } while (0)

int nvmlInitWithFlags(unsigned flags) {
    char line[512];
    int code = OK;
    FILE *file = state();
    (void)flags;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "init_error %d", &code);
    if (file) fclose(file);
    return code;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) { (void)code; return "stub error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 0;
    for (int index = 0; index < MAX_CARDS; index++) *count += find(index).present;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= MAX_CARDS || !find((int)index).present) return BAD_ARGUMENT;
    *handle = handles + index;
    REFUSE_IF_ASKED(*handle);
    return OK;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    REFUSE_IF_ASKED(handle);
    snprintf(text, size, "%s", find(index_of(handle)).uuid);
    return OK;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    REFUSE_IF_ASKED(handle);
    snprintf(text, size, "Stub GPU %d", index_of(handle));
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    REFUSE_IF_ASKED(handle);
    gpu card = find(index_of(handle));
    memory->total = card.total;
    memory->used = card.used;
    memory->free = card.total - card.used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    REFUSE_IF_ASKED(handle);
    if (memory->version != (sizeof *memory | 2 << 24)) return BAD_VERSION;
    gpu card = find(index_of(handle));
    memory->total = card.total;
    memory->reserved = card.reserved;
    memory->used = card.used;
    memory->free = card.total - card.reserved - card.used;
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    REFUSE_IF_ASKED(handle);
    *current = *pending = (unsigned)find(index_of(handle)).mig;
    return OK;
}

int nvmlDeviceGetP2PStatus(void *one, void *other, int capability, int *status) {
    char line[512];
    int a, b;
    FILE *file = state();
    (void)capability;
    *status = 5;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "link %d %d", &a, &b) == 2 &&
            ((a == index_of(one) && b == index_of(other)) || (b == index_of(one) && a == index_of(other))))
            *status = OK;
    if (file) fclose(file);
    return OK;
}

static int list(void *handle, const char *wanted, unsigned *count, process *out) {
    char line[512], name[32];
    unsigned seen = 0, room = out ? *count : 0, pid;
    long long bytes;
    int index;
    FILE *file = state();
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "proc %31s %d %u %lld", name, &index, &pid, &bytes) != 4) continue;
        if (index != index_of(handle) || strcmp(name, wanted)) continue;
        if (seen < room) out[seen] = (process){pid, (u64)bytes, 0xFFFFFFFFu, 0xFFFFFFFFu};
        seen++;
    }
    if (file) fclose(file);
    *count = seen;
    return seen > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *out) {
    REFUSE_IF_ASKED(handle);
    return list(handle, "compute", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process *out) {
    REFUSE_IF_ASKED(handle);
    return list(handle, "graphics", count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, process *out) {
    REFUSE_IF_ASKED(handle);
    return list(handle, "mps", count, out);
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization *out) {
    char line[512];
    int index, code = NOT_SUPPORTED;
    unsigned percent;
    FILE *file = state();
    REFUSE_IF_ASKED(handle);
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "busy %d %u", &index, &percent) == 2 && index == index_of(handle)) {
            *out = (utilization){percent, 0};
            code = OK;
        }
    if (file) fclose(file);
    return code;
}

int nvmlDeviceGetProcessUtilization(void *handle, sample *out, unsigned *count, u64 since) {
    char line[512];
    unsigned seen = 0, room = out ? *count : 0, pid, percent;
    u64 time;
    int index;
    FILE *file = state();
    REFUSE_IF_ASKED(handle);
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "sample %d %u %llu %u", &index, &pid, &time, &percent) != 4) continue;
        if (index != index_of(handle) || time <= since) continue;
        if (seen < room) out[seen] = (sample){pid, time, percent, 0, 0, 0};
        seen++;
    }
    if (file) fclose(file);
    *count = seen;
    return seen == 0 ? NOT_FOUND : seen > room ? TOO_SMALL : OK;
}
