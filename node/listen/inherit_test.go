package listen

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Sockets are taken over as the environment says, by this process alone, and children do not see that environment.
// That of real descriptors is tested with the binary.
func TestInheritRefuses(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, test := range []struct{ pid, count, names, want string }{
		{"", "", "", ""},
		{"1", "3", "http:grpc:resp", ""}, // of another process
		{own, "0", "", ""},
		{"me", "1", "http", "LISTEN_PID \"me\""},
		{"", "1", "http", "LISTEN_PID"},
		{own, "", "http", "LISTEN_FDS"},
		{own, "-1", "http", "LISTEN_FDS"},
		{own, "17", "http", "want 0 to 16"},
		{own, "99999999999999999999", "http", "want 0 to 16"},
		{own, "2", "http", "1 names for 2 sockets: set FileDescriptorName="},
		{own, "1", "http:grpc", "2 names for 1 sockets"},
	} {
		t.Setenv("LISTEN_PID", test.pid)
		t.Setenv("LISTEN_FDS", test.count)
		t.Setenv("LISTEN_FDNAMES", test.names)
		all, err := Inherit()
		if len(all) > 0 || (err == nil) != (test.want == "") ||
			err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, %v", test, all, err)
		}
		for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			if value, ok := os.LookupEnv(name); ok {
				t.Errorf("%s=%s is still in the environment", name, value)
			}
		}
	}
}
