/* Calls the functions of the other library's table, for Go, which cannot call C function pointers. */
#ifndef LP_OTHER_H
#define LP_OTHER_H

#include "lp_core.h"

int other_unique_id(const struct lp_other *o, unsigned char *id);
int other_make(const struct lp_other *o, struct lp_other_init *inits, size_t n);
int other_exchange(const struct lp_other *o, uint64_t comm, const struct lp_transfer *list, size_t n, uintptr_t stream);
int other_async_error(const struct lp_other *o, uint64_t comm);
int other_abort(const struct lp_other *o, uint64_t comm);
int other_destroy(const struct lp_other *o, uint64_t comm);
void other_text(const struct lp_other *o, int result, char *err, size_t errlen);

#endif
