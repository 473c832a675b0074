// A filesystem that refuses locks of files, for a program that is started with this library before all others.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace {

int answer(int file, int command, void* argument) {
  if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) {
    errno = ENOLCK;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fcntl, file, command, argument));
}

}  // namespace

extern "C" {

// Under another name in C++, where flock is a structure's constructor as well.
int refuse_flock(int, int) __asm__("flock");
int refuse_flock(int, int) {
  errno = ENOLCK;
  return -1;
}
int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return answer(file, command, argument);
}
int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return answer(file, command, argument);
}
}
