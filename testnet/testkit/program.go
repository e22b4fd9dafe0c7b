package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is where programs are until the tests of the package end.
var built string

// MainWithPrograms runs the tests of a package, and then removes what Program built. Call it from TestMain.
func MainWithPrograms(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "edgelimit-test-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		return m.Run()
	}())
}

// Program returns a function that builds the program in a folder, once for all tests of a package, and returns its
// path. TestMain of the package calls MainWithPrograms.
func Program(folder string) func(testing.TB) string {
	build := sync.OnceValues(func() (string, error) {
		name := filepath.Join(built, filepath.Base(folder))
		if out, err := exec.Command("go", "build", "-o", name, folder).CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", folder, err, out)
		}
		return name, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		if built == "" {
			t.Fatal("TestMain does not call MainWithPrograms")
		}
		name, err := build()
		Must(t, err)
		return name
	}
}
