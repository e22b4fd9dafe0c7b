package reference

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// referenceProgram is the newest version that the module proxy has. It has no tags that the go command could use.
const (
	referenceProgram = "github.com/envoyproxy/ratelimit/src/service_cmd"
	referenceVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// installed is the path of the reference, which is built once and kept.
var installed = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "edgelimit-reference", referenceVersion)
	name := filepath.Join(dir, path.Base(referenceProgram))
	if _, err = os.Stat(name); err != nil {
		err = install(dir)
	}
	return name, err
})

var program = testkit.Program("../../cmd/edgelimit")

func TestMain(m *testing.M) { testkit.MainWithPrograms(m) }

// errUnavailable is in an error that says why the reference cannot be had.
var errUnavailable = errors.New("envoyproxy/ratelimit cannot be had")

// install installs the reference from the module proxy, and from nowhere else.
func install(dir string) error {
	configured, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		return err
	}
	proxies := proxiesOnly(strings.TrimSpace(string(configured)))
	if proxies == "" {
		return fmt.Errorf("%w: GOPROXY=%s names no module proxy", errUnavailable, configured)
	}
	cmd := exec.Command("go", "install", referenceProgram+"@"+referenceVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOPROXY="+proxies, "GONOPROXY=none", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: go install: %w\n%s", errUnavailable, err, out)
	}
	return nil
}

// proxiesOnly is a value of GOPROXY without the ways around proxies.
func proxiesOnly(goproxy string) string {
	fields := strings.FieldsFunc(goproxy, func(r rune) bool { return r == ',' || r == '|' })
	return strings.Join(slices.DeleteFunc(fields, func(proxy string) bool {
		return proxy == "direct" || proxy == "off"
	}), ",")
}

// builtPrograms returns the paths of both, or skips the test where the reference cannot be had.
func builtPrograms(t *testing.T) (reference, edgelimit string) {
	t.Helper()
	reference, err := installed()
	if errors.Is(err, errUnavailable) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	testkit.Must(t, err)
	return reference, program(t)
}
