package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Setting is an address of the configuration with the flag of edgelimit serve that sets it, or what else does.
type Setting struct {
	Name, Flag, Addr string
	Socket           net.Listener // is used in place of Addr; nil: none
}

// Explain says why nobody can listen at the setting's address and what to do. It wraps err.
func (s Setting) Explain(err error) error {
	network, address, _ := SplitAddress(s.Addr)
	folder := filepath.Dir(address)
	why := "cannot be opened"
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && network == "unix":
		why = "is in use, or no socket; choose another path with " + s.Flag
	case errors.Is(err, syscall.EADDRINUSE):
		host, port, _ := net.SplitHostPort(s.Addr)
		why = fmt.Sprintf("is in use (by whom: ss -ltunp 'sport = :%s'); choose another with %s, %s for any port",
			port, s.Flag, net.JoinHostPort(host, "0"))
	case errors.Is(err, fs.ErrPermission) && network == "unix":
		why = fmt.Sprintf("may not be created by %s; give that user the right to write to %s, or choose another path "+
			"with %s", CurrentUser(), folder, s.Flag)
	case errors.Is(err, fs.ErrPermission):
		why = fmt.Sprintf("is not for %s, as ports below 1024 are not; choose a higher one with %s, "+
			"or grant CAP_NET_BIND_SERVICE", CurrentUser(), s.Flag)
	case errors.Is(err, fs.ErrNotExist):
		why = fmt.Sprintf("cannot be created: there is no folder %s; make it, or choose another path with %s",
			folder, s.Flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "is of no interface of this machine; choose another with " + s.Flag
	}
	return fmt.Errorf("%s: %s %s: %w", s.Name, s.Addr, why, err)
}

// ExplainFile says why the user may not open a file with a secret and what to do. It wraps err.
func ExplainFile(name string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	mode := ""
	if info, statErr := os.Stat(name); statErr == nil {
		mode = fmt.Sprintf(" (mode %v%s)", info.Mode().Perm(), owner(info))
	}
	return fmt.Errorf("%w: %s may not read it%s; make it that user's own (chown), with mode 0600",
		err, CurrentUser(), mode)
}

// CurrentUser names who runs the process, as "user alice (uid 1000)". In a container users may have no names.
func CurrentUser() string {
	uid := os.Geteuid()
	if uid < 0 {
		return "this user"
	}
	if u, err := osuser.LookupId(strconv.Itoa(uid)); err == nil && u.Username != "" {
		return fmt.Sprintf("user %s (uid %d)", u.Username, uid)
	}
	return fmt.Sprintf("uid %d", uid)
}
