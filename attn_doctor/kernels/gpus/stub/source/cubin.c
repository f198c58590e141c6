/* Kernels of a module, with what NVIDIA's assembler wrote about each into the ELF file.
 *
 * Inductor and Triton read registers and spills, and choose by them. They are in .nv.info
 * (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE; names as cuobjdump -elf prints them) and in the section
 * headers. A module in memory has no known size, as for the driver; one from a
 * file is checked against the size of the file. PTX and fat binaries are refused: only a driver can take them.
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGCOUNT = 0x2f, FRAME_SIZE = 0x11, SIZED_VALUE = 4 };

struct variable {
  char *name;
  size_t bytes;
  void *memory;
};

struct stub_module {
  struct stub_function *functions;
  int count;
  struct variable *variables;
  int variable_count;
};

static struct stub_function *find(struct stub_module *module, const char *name) {
  for (int i = 0; i < module->count; i++)
    if (!strcmp(module->functions[i].name, name)) return &module->functions[i];
  return 0;
}

/* Registers and stack of each kernel, which .nv.info names by its symbol. */
static void read_info(struct stub_module *module, const unsigned char *at,
                      const unsigned char *end, const Elf64_Sym *symbols, size_t count,
                      const char *names) {
  while (at + 4 <= end) {
    unsigned format = at[0], attribute = at[1], size = at[2] | at[3] << 8;
    const unsigned char *value = at + 4;
    at = value + (format == SIZED_VALUE ? size : 0);
    if (format != SIZED_VALUE || size != 8 || at > end) continue;
    if (attribute != REGCOUNT && attribute != FRAME_SIZE) continue;
    uint32_t symbol, number;
    memcpy(&symbol, value, 4);
    memcpy(&number, value + 4, 4);
    if (symbol >= count) continue;
    struct stub_function *function = find(module, names + symbols[symbol].st_name);
    if (!function) continue;
    if (attribute == REGCOUNT)
      function->registers = (int)number;
    else
      function->local = (int)number;
  }
}

/* Whether everything that the headers name is within the file. */
static int sound(const unsigned char *image, size_t size) {
  const Elf64_Ehdr *header = (const void *)image;
  if (size < sizeof *header || header->e_ident[EI_CLASS] != ELFCLASS64) return 0;
  if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shstrndx >= header->e_shnum) return 0;
  if (header->e_shoff > size || header->e_shnum > (size - header->e_shoff) / sizeof(Elf64_Shdr))
    return 0;
  const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
  size_t titles = sections[header->e_shstrndx].sh_size;
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *one = &sections[i];
    if (one->sh_name >= titles || one->sh_link >= header->e_shnum) return 0;
    if (one->sh_type == SHT_NOBITS) continue;
    if (one->sh_offset > size || one->sh_size > size - one->sh_offset) return 0;
    if (one->sh_type == SHT_STRTAB && one->sh_size && image[one->sh_offset + one->sh_size - 1])
      return 0;
  }
  return 1;
}

static void read_sections(struct stub_module *module, const unsigned char *image) {
  const Elf64_Ehdr *header = (const void *)image;
  const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
  const char *titles = (const char *)image + sections[header->e_shstrndx].sh_offset;
  const Elf64_Sym *symbols = 0;
  const char *names = 0;
  size_t count = 0;
  module->functions = calloc(header->e_shnum + 1, sizeof *module->functions);
  if (!module->functions) return;
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *section = &sections[i];
    const char *title = titles + section->sh_name;
    if (section->sh_type == SHT_SYMTAB) {
      symbols = (const void *)(image + section->sh_offset);
      count = section->sh_size / sizeof *symbols;
      names = (const char *)image + sections[section->sh_link].sh_offset;
    } else if (!strncmp(title, ".text.", 6)) {
      struct stub_function *function = &module->functions[module->count++];
      function->name = strdup(title + 6);
      function->registers = (int)(section->sh_info >> 24);
      function->threads = 1024;
    }
  }
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *section = &sections[i];
    const char *title = titles + section->sh_name;
    struct stub_function *function;
    if (!strncmp(title, ".nv.shared.", 11) && (function = find(module, title + 11)))
      function->shared = (int)section->sh_size;
    else if (!strncmp(title, ".nv.constant0.", 14) && (function = find(module, title + 14)))
      function->constant = (int)section->sh_size;
    else if (!strcmp(title, ".nv.info") && symbols)
      read_info(module, image + section->sh_offset,
                image + section->sh_offset + section->sh_size, symbols, count, names);
  }
  module->variables = calloc(count + 1, sizeof *module->variables);
  for (size_t i = 0; module->variables && i < count; i++)
    if (ELF64_ST_TYPE(symbols[i].st_info) == STT_OBJECT && symbols[i].st_size) {
      struct variable *one = &module->variables[module->variable_count++];
      one->name = strdup(names + symbols[i].st_name);
      one->bytes = symbols[i].st_size;
    }
}

int stub_module_of(struct stub_module **module, const void *image, size_t size) {
  *module = 0;
  if (!image) return stub_fail(STUB_INVALID_VALUE, "invalid argument: no module");
  if (size < SELFMAG || memcmp(image, ELFMAG, SELFMAG)) return stub_refused("loading PTX");
  if (!sound(image, size)) return stub_fail(200, "device kernel image is invalid");
  struct stub_module *made = calloc(1, sizeof *made);
  if (!made) return stub_fail(STUB_OUT_OF_MEMORY, "out of memory");
  read_sections(made, image);
  *module = made;
  return STUB_OK;
}

int stub_module_at(struct stub_module **module, const char *path) {
  FILE *file = fopen(path, "rb");
  *module = 0;
  if (!file) return stub_fail(301, "file not found: %s", path);
  long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  char *image = size > 0 ? malloc((size_t)size) : 0;
  rewind(file);
  size_t got = image ? fread(image, 1, (size_t)size, file) : 0;
  fclose(file);
  int code = image && got == (size_t)size ? stub_module_of(module, image, got)
                                          : stub_fail(301, "%s cannot be read", path);
  free(image);
  return code;
}

void stub_module_end(struct stub_module *module) {
  if (!module) return;
  for (int i = 0; i < module->count; i++) free(module->functions[i].name);
  for (int i = 0; i < module->variable_count; i++) {
    free(module->variables[i].name);
    if (module->variables[i].memory) stub_free(module->variables[i].memory);
  }
  free(module->functions);
  free(module->variables);
  free(module);
}

struct stub_function *stub_function_named(struct stub_module *module, const char *name) {
  return module ? find(module, name) : 0;
}

int stub_function_count(const struct stub_module *module) { return module ? module->count : 0; }

struct stub_function *stub_function_at(struct stub_module *module, int index) {
  return module && index >= 0 && index < module->count ? &module->functions[index] : 0;
}

int stub_variable(struct stub_module *module, const char *name, void **pointer, size_t *bytes) {
  for (int i = 0; module && i < module->variable_count; i++) {
    struct variable *one = &module->variables[i];
    if (strcmp(one->name, name)) continue;
    if (!one->memory) {
      int code = stub_allocate(&one->memory, one->bytes, stub_current());
      if (code) return code;
    }
    if (pointer) *pointer = one->memory;
    if (bytes) *bytes = one->bytes;
    return STUB_OK;
  }
  return stub_fail(STUB_NOT_FOUND, "named symbol not found: %s", name);
}
