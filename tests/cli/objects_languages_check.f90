! SPDX-License-Identifier: BSD-3-Clause
! Every call of the Fortran module, in a directory.
program objects_languages_check
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
  use efs_objects
  implicit none
  type(eo_storage) :: store, version
  character(4096) :: directory
  integer :: error

  call get_command_argument(1, directory)
  call eo_open(store, directory)
  call each_type()
  call parts()
  call versions()
  call checkpoints()
  call failures()
  if (command_argument_count() > 1) call eo_remove(store, "nosuch")
  call eo_close(store)
  print '(a)', "done"

contains

  subroutine holds(condition, what)
    logical, intent(in) :: condition
    character(*), intent(in) :: what
    if (.not. condition) then
      write (error_unit, '(2a)') "not ", what
      error stop 3
    end if
  end subroutine

  subroutine each_type()
    real(real32) :: a(2, 3), a2(2, 3), s, s2
    real(real64) :: b(2, 3, 4), b2(2, 3, 4)
    integer(int32) :: c(5), c2(5)
    integer(int64) :: d, d2
    integer :: i
    a = reshape([(real(i, real32), i = 1, 6)], [2, 3])
    b = reshape([(real(i, real64) / 4, i = 1, 24)], [2, 3, 4])
    c = [(i * i, i = 1, 5)]
    d = huge(d)
    s = 0.5_real32
    call eo_store(store, "a", a)
    call eo_store(store, "b", b, sync=.true.)
    call eo_store(store, "c", c)
    call eo_store(store, "d", d)
    call eo_store(store, "s", s)
    call eo_store(store, "every/other", b(:, 1::2, 2))
    call eo_load(store, "a", a2)
    call eo_load(store, "b", b2)
    call eo_load(store, "c", c2)
    call eo_load(store, "d", d2)
    call eo_load(store, "s", s2)
    call holds(all(a == a2) .and. all(b == b2) .and. all(c == c2) .and. d == d2 .and. s == s2, "equal")
    call eo_load(store, "every/other", b2(:, 1:2, 1))
    call holds(all(b2(:, 1:2, 1) == b(:, 1::2, 2)), "a section with gaps")
  end subroutine

  subroutine parts()
    real(real64) :: part(1, 2, 2)
    call eo_load(store, "b", part, start=[2_int64, 2_int64, 3_int64])
    call holds(part(1, 1, 1) == (2 + 2 + 12) / 4.0_real64, "the first element of a part")
    call holds(part(1, 2, 2) == (2 + 4 + 18) / 4.0_real64, "the last element of a part")
    call eo_load(store, "b", part, start=[2_int64], error=error)
    call holds(error == 22 .and. index(eo_message(), "start needs") > 0, "a start of rank 1")
    call eo_load(store, "b", part, start=[0_int64, 1_int64, 1_int64], error=error)
    call holds(error == 22, "a start of 0")
  end subroutine

  subroutine versions()
    integer(int64) :: n, found
    do n = 1, 3
      call eo_begin(store, "run", n, version)
      call eo_store(version, "n", n)
      call eo_commit(version, sync=(n == 3))
    end do
    call eo_begin(store, "run", 4_int64, version)
    call eo_abort(version)
    call eo_keep(store, "run", 2)
    call eo_version(store, "run", eo_latest, version)
    call eo_load(version, "n", found)
    call eo_close(version)
    call holds(found == 3, "the newest version")
    call eo_version(store, "run", 1_int64, version, error)
    call holds(error == 2, "a removed version")
  end subroutine

  subroutine checkpoints()
    real(real64), allocatable, target :: u(:, :)
    integer(int64), target :: step
    integer(int64) :: found
    allocate(u(100, 50))
    call eo_configure(store, "strategy", "copy")
    call eo_protect(store, "u", u)
    call eo_protect(store, "step", step)
    do step = 1, 2
      u = real(step, real64)
      call eo_checkpoint(store, "ck", step)
      call eo_wait(store)
    end do
    u = -1
    call eo_restore(store, "ck", eo_latest, found)
    call holds(found == 2 .and. all(u == 2) .and. step == 2, "the newest checkpoint")
    call eo_restore(store, "ck", 1_int64)
    call holds(all(u == 1) .and. step == 1, "checkpoint 1")
    call eo_protect(store, "gaps", u(::2, :), error)
    call holds(error == 22 .and. index(eo_message(), "gaps") > 0, "a section is not protected")
    call eo_unprotect(store, "u")
    call eo_unprotect(store, "step")
  end subroutine

  subroutine failures()
    real(real32) :: wrong(2, 2)
    call eo_load(store, "a", wrong, error=error)
    call holds(error == 22 .and. index(eo_message(), "a.npy") > 0, "another shape")
    call eo_load(store, "c", wrong, error=error)
    call holds(error == 22, "another type")
    call eo_remove(store, "s")
    call eo_load(store, "s", wrong, error=error)
    call holds(error == 2, "a removed object")
  end subroutine
end program
