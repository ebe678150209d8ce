/* The registered memory of a connection of the test plugin. Functions return 0 if they fail. */
#ifndef LP_TEST_REGIONS_H
#define LP_TEST_REGIONS_H

#include "net.h"

#include <sys/mman.h>

enum { REGIONS = 64, PAGE = 4096 };

/* The plugin reaches the memory at `to`, which is at an offset of a mapping. */
struct region {
	char *at, *to;
	size_t size, offset;
	int type; /* 0: not used */
};

struct regions {
	struct region all[REGIONS];
	int used;
};

static int add_region(struct regions *s, char *at, size_t size, int type, char *mapped, size_t offset, void **memory)
{
	for (int i = 0; i < REGIONS; i++) {
		if (s->all[i].type)
			continue;
		s->all[i] = (struct region){at, mapped + offset, size, offset, type};
		s->used++;
		*memory = (void *)(uintptr_t)(i + 1); /* no pointer */
		return 1;
	}
	return 0;
}

/* add_device makes a second mapping of a device's memory, which the CPU can use. */
static int add_device(struct regions *s, char *at, size_t size, void **memory)
{
	size_t offset = (uintptr_t)at % PAGE;
	char *mapped = mremap(at - offset, 0, offset + size, MREMAP_MAYMOVE);
	return mapped != MAP_FAILED && mprotect(mapped, offset + size, PROT_READ | PROT_WRITE) == 0 &&
	       add_region(s, at, size, NET_DEVICE_MEMORY, mapped, offset, memory);
}

static int add_dmabuf(struct regions *s, char *at, size_t size, size_t offset, int fd, void **memory)
{
	char *mapped = mmap(NULL, offset + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return mapped != MAP_FAILED && add_region(s, at, size, NET_DEVICE_MEMORY, mapped, offset, memory);
}

/* find_region returns the region of a handle if it holds n bytes, else NULL. */
static struct region *find_region(struct regions *s, void *memory, char *at, size_t n)
{
	uintptr_t i = (uintptr_t)memory - 1;
	struct region *r = &s->all[i];
	return i < REGIONS && r->type && at >= r->at && at + n <= r->at + r->size ? r : NULL;
}

static int drop_region(struct regions *s, void *memory)
{
	uintptr_t i = (uintptr_t)memory - 1;
	if (i >= REGIONS || !s->all[i].type)
		return 0;
	struct region *r = &s->all[i];
	if (r->type == NET_DEVICE_MEMORY)
		munmap(r->to - r->offset, r->offset + r->size);
	*r = (struct region){0};
	s->used--;
	return 1;
}

#endif
