#include "daemon/efsd.hpp"

int main(int argc, char** argv) { return efs::daemon::efsd(argc, argv); }
