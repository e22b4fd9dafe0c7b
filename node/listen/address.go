package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// maxSocketPath is the longest path of a Unix socket that every system takes, in bytes.
const maxSocketPath = 103

// SplitAddress returns the network and the address of host:port or unix:/path.
func SplitAddress(addr string) (network, address string, err error) {
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

// IsLocal reports whether only this machine can reach an address, as SplitAddress takes it: a Unix socket, localhost,
// or an IP address of loopback. It is false of what is no address.
func IsLocal(addr string) bool {
	network, address, err := SplitAddress(addr)
	if err != nil || network == "unix" {
		return err == nil
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// listen opens an address. It replaces a Unix socket that a killed process has left behind.
func listen(addr string) (net.Listener, error) {
	network, address, err := SplitAddress(addr)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && isStale(address) {
		if err := os.Remove(address); err != nil {
			return nil, err
		}
		return net.Listen(network, address)
	}
	return l, err
}

// isStale reports whether nobody listens on the Unix socket at the path.
func isStale(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
