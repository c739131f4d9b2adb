package ui

import "syscall"

// yields has the calling thread give way to every other one that wants its processor. Where the system does not let it, nothing is lost but that.
func yields() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) } // 0: on Linux the calling thread
