package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// maxSocketPath is how long the path of a Unix socket may be, in bytes, on every system.
const maxSocketPath = 103

// splitDoor tells the network and the address that a door is to listen on: host:port, or unix:/path.
func splitDoor(addr string) (network, address string, err error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	switch {
	case !unix:
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return "", "", fmt.Errorf("address %q: want host:port or unix:/path", addr)
		}
		return "tcp", addr, nil
	case path == "" || len(path) > maxSocketPath:
		return "", "", fmt.Errorf("address %q: want unix: and a path of 1 to %d bytes", addr, maxSocketPath)
	}
	return "unix", path, nil
}

// listen opens a door's address. The socket of a process that was killed lies there still: one that nobody listens on is replaced.
func listen(addr string) (net.Listener, error) {
	network, address, err := splitDoor(addr)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && deserted(address) {
		if err := os.Remove(address); err != nil {
			return nil, err
		}
		return net.Listen(network, address)
	}
	return l, err
}

// deserted reports whether there is a socket at the path that nobody listens on.
func deserted(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
