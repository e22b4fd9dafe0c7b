//go:build unix

package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	firstInherited = 3 // the first descriptor after the standard streams: SD_LISTEN_FDS_START
	maxInherited   = 16
)

// Inherit returns the sockets that the process was started with, by their names, as systemd's socket activation passes
// them: LISTEN_FDS descriptors from 3 on, named by LISTEN_FDNAMES, for the process LISTEN_PID. There are none where
// that is another process. It removes these variables from the environment, and children do not inherit the sockets.
// Call it once, before other files are opened.
func Inherit() (map[string]net.Listener, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if pid == "" && count == "" {
		return nil, nil
	}
	n, err := parseInherited(pid, count)
	if err != nil || n == 0 {
		return nil, err
	}
	return inherit(n, strings.Split(names, ":"))
}

// parseInherited returns how many descriptors are passed to this process.
func parseInherited(pid, count string) (int, error) {
	id, err := strconv.ParseUint(pid, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("LISTEN_PID %.20q: want the process id that the sockets are for", pid)
	}
	if id != uint64(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n > maxInherited {
		return 0, fmt.Errorf("LISTEN_FDS %.20q: want 0 to %d sockets", count, maxInherited)
	}
	return int(n), nil
}

// inherit takes over n sockets. If one cannot be used, it closes those before.
func inherit(n int, names []string) (all map[string]net.Listener, err error) {
	if len(names) != n {
		return nil, fmt.Errorf("LISTEN_FDNAMES has %d names for %d sockets: set FileDescriptorName= in each socket "+
			"unit", len(names), n)
	}
	all = make(map[string]net.Listener)
	defer func() {
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
		}
	}()
	for i, name := range names {
		if all[name] != nil {
			return all, fmt.Errorf("LISTEN_FDNAMES: two sockets are named %.40q: one ListenStream= for each name", name)
		}
		l, err := inheritOne(firstInherited+i, name)
		if err != nil {
			return all, fmt.Errorf("LISTEN_FDS: descriptor %d, %.40q: %w", firstInherited+i, name, err)
		}
		all[name] = l
	}
	return all, nil
}

// inheritOne takes over a descriptor, and leaves alone what is no listening socket: it may be a file of the runtime.
func inheritOne(fd int, name string) (net.Listener, error) {
	listening, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err != nil {
		return nil, fmt.Errorf("is no socket: %w", err)
	}
	if listening == 0 {
		return nil, errors.New("does not listen: the socket unit needs ListenStream= and Accept=no")
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }() // FileListener has a copy
	return net.FileListener(file)
}
