/* Creates queue pairs on a device with a limit of inline data: inline LIMIT prints the limit that lpv_qp finds for 200
 * bytes, or the error. */
#include "../queue.c"

#include <stdio.h>
#include <stdlib.h>

static unsigned int limit;

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static struct ibv_qp qp;
	(void)pd;
	errno = EINVAL;
	return attr->cap.max_inline_data <= limit ? &qp : NULL;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

struct lpv_library lpv = {.create_qp = create_qp, .modify_qp = modify_qp};

int main(int argc, char **argv)
{
	struct lpv_device device = {0};
	struct lpv_qp q = {.inlined = 200};
	limit = argc > 1 ? (unsigned int)atoi(argv[1]) : 0;
	int rc = lpv_qp(&device, NULL, 0, 1, 1, 1, &q);
	if (rc)
		printf("error %d\n", rc);
	else
		printf("%d\n", q.inlined);
	return 0;
}
