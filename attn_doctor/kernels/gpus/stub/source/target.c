/* The GPU whose properties the stub GPU has, read once from ATTN_DOCTOR_STUB_GPU_TARGET:
 *
 *     devices=1;driver=13000;memory=150109880320;75=9;76=0;…;name=NVIDIA H200
 *
 * A number is a CUdevice_attribute. Without the variable there is no device.
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct stub_target target;
static int attributes[STUB_ATTRIBUTES];
static char given[STUB_ATTRIBUTES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take(const char *key, const char *value) {
  char *end;
  long number = strtol(key, &end, 10);
  if (end != key && !*end) {
    if (number > 0 && number < STUB_ATTRIBUTES) {
      attributes[number] = (int)strtol(value, 0, 10);
      given[number] = 1;
    }
  } else if (!strcmp(key, "devices")) {
    int devices = atoi(value);
    target.devices = devices < 0 ? 0 : devices > STUB_MOST_DEVICES ? STUB_MOST_DEVICES : devices;
  } else if (!strcmp(key, "driver")) {
    target.driver = atoi(value);
  } else if (!strcmp(key, "memory")) {
    target.memory = strtoull(value, 0, 10);
  } else if (!strcmp(key, "name")) {
    snprintf(target.name, sizeof target.name, "%s", value);
  }
}

static void read_target(void) {
  const char *text = getenv("ATTN_DOCTOR_STUB_GPU_TARGET");
  char *copy = text ? strdup(text) : 0, *rest = 0;
  if (!copy) return;
  for (char *pair = strtok_r(copy, ";", &rest); pair; pair = strtok_r(0, ";", &rest)) {
    char *equals = strchr(pair, '=');
    if (!equals) continue;
    *equals = 0;
    take(pair, equals + 1);
  }
  free(copy);
}

/* When the library is loaded: later, the program may change the environment. */
__attribute__((constructor)) static void load(void) { pthread_once(&once, read_target); }

const struct stub_target *stub_target(void) {
  pthread_once(&once, read_target);
  return &target;
}

/* What holds for every GPU since compute capability 7.5 (CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability"), if the target does not give it. */
static const int common[][2] = {
    {1, 1024}, {2, 1024},  {3, 1024}, {4, 64},         {5, 2147483647}, {6, 65535}, {7, 65535},
    {9, 65536}, {10, 32},  {11, 2147483647}, {12, 65536}, {14, 512},    {15, 1},    {17, 0},
    {19, 1},   {20, 0},    {31, 1},   {35, 0},         {41, 1},         {51, 32},   {78, 1},
    {79, 1},   {80, 1},    {90, 1},   {95, 1},         {99, 1},
};
/* What the stub GPU itself can do, whatever its target is: addresses apart from memory (102) and
 * pools (115), and nothing that reaches other processes, devices or the host's own memory. */
static const int own[][2] = {
    {83, 0},  {86, 0},  {88, 0},  {89, 0},  {100, 0}, {101, 0}, {102, 1}, {103, 0},
    {104, 0}, {105, 0}, {107, 0}, {110, 0}, {112, 0}, {114, 0}, {115, 1}, {116, 0},
    {119, 0}, {121, 0}, {124, 0}, {125, 0}, {128, 0}, {132, 0}, {133, 0},
};

static int in_table(const int (*table)[2], size_t count, int number, int *value) {
  for (size_t i = 0; i < count; i++)
    if (table[i][0] == number) {
      *value = table[i][1];
      return 1;
    }
  return 0;
}

int stub_attribute(int number, int *value) {
  stub_target();
  if (number <= 0 || number >= STUB_ATTRIBUTES) return 0;
  if (in_table(own, sizeof own / sizeof *own, number, value)) return 1;
  if (given[number]) {
    *value = attributes[number];
    return 1;
  }
  if (in_table(common, sizeof common / sizeof *common, number, value)) return 1;
  /* Clocks and the bus, from which only times are estimated. CUDA also returns 0 if a GPU does not
   * report them, and Triton reads them together with what it needs. */
  *value = 0;
  return number == 13 || number == 36 || number == 37;
}

int stub_value(int number) {
  int value = 0;
  stub_attribute(number, &value);
  return value;
}

void stub_uuid(int device, unsigned char uuid[16]) {
  memcpy(uuid, "stub GPU\0\0\0\0\0\0\0", 16);
  uuid[15] = (unsigned char)device;
}

void stub_uuid_text(int device, char *text, size_t size) {
  unsigned char u[16];
  stub_uuid(device, u);
  snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
           u[14], u[15]);
}

void stub_bus(int device, int *domain, int *bus, int *slot) {
  *domain = 0;
  *bus = device + 1;
  *slot = 0;
}

/* CUDA_VISIBLE_DEVICES as CUDA reads it: numbers or beginnings of "GPU-…", up to the first that is
 * not a device of this machine; none at all if one is repeated. */
static int names(const char *word) {
  char text[48];
  char *end;
  long number = strtol(word, &end, 10);
  if (end != word && !*end) return number >= 0 && number < target.devices ? (int)number : -1;
  for (int device = 0; device < target.devices; device++) {
    stub_uuid_text(device, text, sizeof text);
    if (*word && !strncasecmp(word, text, strlen(word))) return device;
  }
  return -1;
}

static int visible_count, visible[STUB_MOST_DEVICES];
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static void read_visible(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  stub_target();
  if (!text) {
    for (int device = 0; device < target.devices; device++) visible[visible_count++] = device;
    return;
  }
  char *copy = strdup(text), *rest = copy;
  for (char *word; copy && (word = strsep(&rest, ","));) {
    while (*word == ' ') word++;
    for (size_t n = strlen(word); n && word[n - 1] == ' ';) word[--n] = 0;
    int device = names(word);
    if (device < 0 || visible_count == STUB_MOST_DEVICES) break;
    for (int i = 0; i < visible_count; i++)
      if (visible[i] == device) {
        visible_count = 0;
        free(copy);
        return;
      }
    visible[visible_count++] = device;
  }
  free(copy);
}

int stub_visible(void) {
  pthread_once(&asked, read_visible);
  return visible_count;
}

int stub_physical(int device) {
  return device >= 0 && device < stub_visible() ? visible[device] : 0;
}
