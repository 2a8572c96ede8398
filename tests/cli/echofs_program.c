/* SPDX-License-Identifier: BSD-3-Clause */
/* A program in the form that echofs' users wrote theirs in: its header, its calls, its way to poll.
 * ./echofs_program BACKEND PATH */
#include <efs-api.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char* why(int code) {
  char* text = efs_strerror(code);
  return code == EFS_API_UNKNOWN ? efs_strerror(-EFS_API_ERRMAX) : text;
}

static int ended(struct efs_iocb* cb, const char* what) {
  int rv;
  while ((rv = efs_status(cb)) != EFS_API_SUCCESS) {
    if (rv != EFS_API_ETASKPENDING && rv != EFS_API_ETASKINPROGRESS) {
      fprintf(stderr, "%s: %s\n", what, why(rv));
      return rv;
    }
    usleep(1000);
  }
  return rv;
}

int main(int argc, char* argv[]) {
  int rv;
  if (argc != 3) {
    return 2;
  }
  struct efs_iocb iocb = EFS_IOCB_INIT(argv[1], argv[2], 0, 0);

  if ((rv = efs_load(&iocb)) != EFS_API_SUCCESS) {
    fprintf(stderr, "efs_load: %s\n", why(rv));
    exit(EXIT_FAILURE);
  }
  if (ended(&iocb, "load") != EFS_API_SUCCESS) {
    exit(EXIT_FAILURE);
  }
  if ((rv = efs_unload(&iocb)) != EFS_API_SUCCESS) {
    fprintf(stderr, "efs_unload: %s\n", why(rv));
    exit(EXIT_FAILURE);
  }
  exit(ended(&iocb, "unload") == EFS_API_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE);
}
