/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures writing and reading of one array of doubles by all ranks, with peers that alternate.
 *   usage: objects-peers DIRECTORY MIB ROUNDS long|short PEER.so...
 * long: a rank has some planes of the array, one run of the file. short: a rank has a part of each
 * line, runs of 2 KiB with 2 ranks; reading then does not add. The first round is not printed; it
 * compares all values. Prints lines of operation, peer and milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

enum { LINE = 512, PLANE = LINE * LINE, MOST = 32, PIECE_MIB = 64 };

struct contender {
  const struct peer* peer;
  int out; /* it has failed */
};

static int all_good(int good) {
  int all = good;
  MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all;
}

static int unlink_entry(const char* path, const struct stat* status, int type, struct FTW* walk) {
  (void)status;
  (void)type;
  (void)walk;
  return remove(path);
}

/* Uses as much memory as the array needs, and frees it. The host of a virtual machine takes back
 * memory that was free for two seconds, and then its first use costs a second per GiB. The kernel
 * gives a file the memory that was freed last. */
static void warm_memory(const struct job* job) {
  const size_t size = job->shape[0] * PLANE * sizeof(double);
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    madvise(memory, size, MADV_HUGEPAGE);
    memset(memory, 1, size);
    munmap(memory, size);
  }
}

/* Makes the directory of a measurement new. */
static void renew(const struct job* job, int make) {
  if (job->rank == 0) {
    nftw(job->directory, unlink_entry, 16, FTW_DEPTH | FTW_PHYS);
    /* A mount frees the space in the background. */
    nanosleep(&(const struct timespec){0, 100000000}, NULL);
    warm_memory(job);
    if (make && mkdir(job->directory, 0777) != 0) {
      perror(job->directory);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void compute_part(struct job* job) {
  const size_t line = job->count[2];
  double* to = job->part;
  for (size_t i = 0; i < job->count[0]; ++i) {
    for (size_t j = 0; j < job->count[1]; ++j, to += line) {
      const size_t row = (job->start[0] + i) * job->shape[1] + job->start[1] + j;
      compute(to, row * job->shape[2] + job->start[2], line);
    }
  }
}

static void set_up(struct job* job, char** arguments) {
  const size_t planes = strtoul(arguments[1], NULL, 10) * (1U << 20) / (PLANE * sizeof(double));
  const int along = strcmp(arguments[3], "short") == 0 ? 2 : 0;
  snprintf(job->directory, sizeof job->directory, "%s/peers", arguments[0]);
  job->shape[0] = planes / (size_t)job->ranks * (size_t)job->ranks;
  job->shape[1] = job->shape[2] = LINE;
  memcpy(job->count, job->shape, sizeof job->count);
  job->count[along] /= (size_t)job->ranks;
  job->start[along] = job->count[along] * (size_t)job->rank;
  job->contiguous = along == 0 || job->ranks == 1;
  job->rows = ((size_t)PIECE_MIB << 20) / sizeof(double) / row_values(job);
  job->part = malloc(job->count[0] * row_values(job) * sizeof(double));
  job->piece = malloc(job->rows * row_values(job) * sizeof(double));
  if (!all_good(job->part != NULL && job->piece != NULL && job->count[0] > 0)) {
    failed("objects-peers", "no memory, or no data");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  compute_part(job);
  memset(job->piece, 0, job->rows * row_values(job) * sizeof(double));
}

/* Returns the number of contenders. */
static int load_peers(struct contender* contenders, const struct job* job, char** paths) {
  int count = 0;
  for (; *paths != NULL; ++paths) {
    void* library = dlopen(*paths, RTLD_NOW | RTLD_LOCAL);
    const struct peer* peer = library != NULL ? dlsym(library, "peers") : NULL;
    if (peer == NULL) {
      failed("skipped", dlerror());
    }
    if (!all_good(peer != NULL)) {
      continue;
    }
    for (; peer->name != NULL && count < MOST; ++peer) {
      if (job->contiguous || !peer->contiguous_only) {
        contenders[count++] = (struct contender){peer, 0};
      }
    }
  }
  return count;
}

/* Runs one operation of all ranks. A negative time: it failed. */
static double timed(int (*operation)(struct job*), struct job* job) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  const int error = operation(job);
  MPI_Barrier(MPI_COMM_WORLD);
  const double end = MPI_Wtime();
  return all_good(error == 0) ? (end - begin) * 1e3 : -1;
}

static int right_sum(struct job* job) {
  const double found = job->sum;
  job->sum = 0;
  job->add = 1;
  add(job, job->part, job->count[0] * row_values(job));
  return all_good(job->sum == found);
}

static void measure(struct contender* contender, struct job* job, int rehearsal) {
  const struct peer* peer = contender->peer;
  renew(job, 1);
  const double written = timed(peer->write, job);
  job->sum = 0;
  job->add = rehearsal || job->contiguous;
  const double got = written < 0 ? -1 : timed(peer->read, job);
  contender->out = got < 0 || (job->add && !right_sum(job));
  if (job->rank == 0 && contender->out) {
    failed(peer->name, "failed, or has other values");
  } else if (job->rank == 0 && !rehearsal) {
    printf("write\t%s\t%.3f\nread\t%s\t%.3f\n", peer->name, written, peer->name, got);
    fflush(stdout);
  }
}

/* The same order on all ranks. */
static void shuffle(struct contender* contenders, int count, unsigned seed) {
  for (int i = count - 1; i > 0; --i) {
    seed = seed * 1664525U + 1013904223U;
    const int k = (int)(seed >> 8U) % (i + 1);
    const struct contender other = contenders[k];
    contenders[k] = contenders[i];
    contenders[i] = other;
  }
}

int main(int argc, char** argv) {
  struct contender contenders[MOST];
  static struct job job;
  MPI_Init(&argc, &argv);
  if (argc < 6) {
    failed("usage", "objects-peers DIRECTORY MIB ROUNDS long|short PEER.so...");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
  set_up(&job, argv + 1);
  const int count = load_peers(contenders, &job, argv + 5);
  for (int round = 0; round <= atoi(argv[3]); ++round) {
    shuffle(contenders, count, (unsigned)round + 1);
    for (int i = 0; i < count; ++i) {
      if (!contenders[i].out) {
        measure(&contenders[i], &job, round == 0);
      }
    }
  }
  renew(&job, 0);
  MPI_Finalize();
  return 0;
}
