/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs for persistent memory on a mount.
 *   pmdk_check create POOL    creates a pool, commits 100 sums in transactions, closes it
 *   pmdk_check die POOL       changes the sums in a transaction and kills itself in it
 *   pmdk_check continue POOL  the sums are those of the commits; commits 100 more, with a pause
 *   pmdk_check kind DIR       memkind's PMEM kind: allocates, writes, frees, with a pause
 * A pause prints "begun" and reads a line. */
#include <libpmemobj.h>
#include <memkind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      fprintf(stderr, "%d: not %s\n", __LINE__, #condition); \
      exit(1);                                               \
    }                                                        \
  } while (0)

#define SUMS 1000
#define BLOCKS 2000

struct sums {
  long commits;
  long values[SUMS]; /* each is commits * its index */
};

static void wait_for_line(void) {
  puts("begun");
  fflush(stdout);
  HOLDS(getchar() == '\n');
}

static void add_once(struct sums* sums) {
  for (long i = 0; i < SUMS; ++i) {
    sums->values[i] += i;
  }
  ++sums->commits;
}

static void commit(PMEMobjpool* pool, PMEMoid root, int times) {
  struct sums* sums = pmemobj_direct(root);
  for (int i = 0; i < times; ++i) {
    TX_BEGIN(pool) {
      pmemobj_tx_add_range(root, 0, sizeof *sums);
      add_once(sums);
      /* An object of its own, so that the heap changes, too. */
      PMEMoid block = pmemobj_tx_alloc(100 + (size_t)i * 10, 1);
      memset(pmemobj_direct(block), i, 100);
    }
    TX_ONABORT {
      HOLDS(!"aborted");
    }
    TX_END
  }
}

static void compare(const struct sums* sums, long commits) {
  HOLDS(sums->commits == commits);
  for (long i = 0; i < SUMS; ++i) {
    HOLDS(sums->values[i] == commits * i);
  }
}

static long blocks_of(PMEMobjpool* pool) {
  long count = 0;
  for (PMEMoid block = pmemobj_first(pool); !OID_IS_NULL(block); block = pmemobj_next(block)) {
    ++count;
  }
  return count;
}

static void die(PMEMobjpool* pool, PMEMoid root) {
  struct sums* sums = pmemobj_direct(root);
  TX_BEGIN(pool) {
    pmemobj_tx_add_range(root, 0, sizeof *sums);
    add_once(sums);
    pmemobj_tx_alloc(1000, 1);
    raise(SIGKILL);
  }
  TX_END
}

static void use_pool(const char* what, const char* path) {
  if (strcmp(what, "continue") == 0) {
    HOLDS(pmemobj_check(path, "sums") == 1);
  }
  PMEMobjpool* pool = strcmp(what, "create") == 0
                          ? pmemobj_create(path, "sums", 2 * PMEMOBJ_MIN_POOL, 0600)
                          : pmemobj_open(path, "sums");
  if (pool == NULL) {
    fprintf(stderr, "%s: %s\n", path, pmemobj_errormsg());
    exit(1);
  }
  const PMEMoid root = pmemobj_root(pool, sizeof(struct sums));
  const struct sums* sums = pmemobj_direct(root);
  if (strcmp(what, "create") == 0) {
    commit(pool, root, 100);
  } else if (strcmp(what, "die") == 0) {
    die(pool, root);
  } else {
    compare(sums, 100);
    HOLDS(blocks_of(pool) == 100);
    commit(pool, root, 50);
    wait_for_line();
    compare(sums, 150);
    commit(pool, root, 50);
    compare(sums, 200);
    HOLDS(blocks_of(pool) == 200);
  }
  pmemobj_close(pool);
}

static size_t size_of(int i) {
  return 16 + (size_t)(i * 37 % 5000);
}

static void use_kind(const char* directory) {
  static char* blocks[BLOCKS];
  struct memkind* kind = NULL;
  HOLDS(memkind_create_pmem(directory, 4 * MEMKIND_PMEM_MIN_SIZE, &kind) == 0);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < BLOCKS; ++i) {
      if (blocks[i] == NULL) {
        blocks[i] = memkind_malloc(kind, size_of(i));
        HOLDS(blocks[i] != NULL);
        memset(blocks[i], i % 251, size_of(i));
      }
    }
    if (round == 0) {
      wait_for_line();
    }
    for (int i = 0; i < BLOCKS; ++i) {
      HOLDS(blocks[i][0] == (char)(i % 251) && blocks[i][size_of(i) - 1] == (char)(i % 251));
      if (i % 2 == 0) {
        memkind_free(kind, blocks[i]);
        blocks[i] = NULL;
      }
    }
  }
  /* More than there is fails, and harms nothing. */
  HOLDS(memkind_malloc(kind, 8 * MEMKIND_PMEM_MIN_SIZE) == NULL);
  HOLDS(memkind_destroy_kind(kind) == 0);
}

int main(int argc, char** argv) {
  HOLDS(argc == 3);
  if (strcmp(argv[1], "kind") == 0) {
    use_kind(argv[2]);
  } else {
    use_pool(argv[1], argv[2]);
  }
  puts("done");
  return 0;
}
