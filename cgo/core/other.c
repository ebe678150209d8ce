#include "other.h"

int other_unique_id(const struct lp_other *o, unsigned char *id) { return o->unique_id(id); }

int other_make(const struct lp_other *o, struct lp_other_init *inits, size_t n) { return o->make(inits, n); }

int other_exchange(const struct lp_other *o, uint64_t comm, const struct lp_transfer *list, size_t n,
                   uintptr_t stream) {
  return o->exchange(comm, list, n, (void *)stream);
}

int other_async_error(const struct lp_other *o, uint64_t comm) { return o->async_error(comm); }
int other_abort(const struct lp_other *o, uint64_t comm) { return o->abort(comm); }
int other_destroy(const struct lp_other *o, uint64_t comm) { return o->destroy(comm); }

void other_text(const struct lp_other *o, int result, char *err, size_t errlen) { o->text(result, err, errlen); }
