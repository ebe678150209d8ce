/* Loads plugins of NCCL, and takes their lines for the log. */
#ifndef LP_PLUGINS_LOAD_H
#define LP_PLUGINS_LOAD_H

#include <stddef.h>
#include <stdint.h>

/* Plugins of all kinds get such a function. level: 2 is a warning, 3 information. */
enum { PLUGIN_WARN = 2, PLUGIN_INFO = 3 };
typedef void (*plugin_log)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);

/* lp_plugin_load loads a library. Without handle, error says why; missing is set if no such file exists. */
struct lp_library { void *handle; int missing; char error[512]; };
struct lp_library lp_plugin_load(const char *file);

/* lp_plugin_find returns the newest variable of a name with a version ("ncclNetPlugin_v") in a library, and its
 * version; 0 without one. */
struct lp_symbol { void *at; int version; };
struct lp_symbol lp_plugin_find(void *library, const char *name, int newest, int oldest);

/* lp_plugin_log passes warnings and information of plugins to Go. */
void lp_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);

#endif
