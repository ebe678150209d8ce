/* Loads plugins of NCCL. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "_cgo_export.h"

struct lp_library lp_plugin_load(const char *file)
{
	struct lp_library l = {0};
	l.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!l.handle) {
		const char *why = dlerror();
		snprintf(l.error, sizeof l.error, "%s", why ? why : file);
		/* the library itself is missing, not one that it needs */
		l.missing = strncmp(l.error, file, strlen(file)) == 0 && strstr(l.error, "No such file");
	}
	return l;
}

struct lp_symbol lp_plugin_find(void *library, const char *name, int newest, int oldest)
{
	struct lp_symbol s = {0};
	for (int version = newest; version >= oldest && !s.at; version--) {
		char symbol[64];
		snprintf(symbol, sizeof symbol, "%s%d", name, version);
		s.at = dlsym(library, symbol);
		s.version = s.at ? version : 0;
	}
	return s;
}

void lp_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *format, ...)
{
	char text[512];
	(void)subsystems, (void)file, (void)line;
	if (level != PLUGIN_WARN && level != PLUGIN_INFO)
		return;
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	lpPluginLog(level == PLUGIN_WARN, text);
}
