package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const version = "v1.2.3-rc.1"

// TestRelease makes a release for this machine's architecture twice, and holds what users of one rely on.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Fatalf("the test installs a Debian package: run it on linux, not %s", runtime.GOOS)
	}
	dir := t.TempDir()
	first, again := filepath.Join(dir, "first"), filepath.Join(dir, "again")
	var made [2]bytes.Buffer
	for i, out := range []string{first, again} {
		if i == 1 { // another time zone, and settings that would change the bytes
			t.Setenv("TZ", "Asia/Tokyo")
			t.Setenv("GOFLAGS", "-buildvcs=true")
			t.Setenv("GOAMD64", "v2")
		}
		target := "linux/" + runtime.GOARCH
		args := []string{"--version", version, "--targets", target, "--out", out, "--dirty", "--json"}
		if err := run(args, &made[i], io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if made[0].String() != made[1].String() {
		t.Errorf("two releases of one commit differ:\n%s%s", &made[0], &made[1])
	}
	var r report
	if err := json.Unmarshal(made[0].Bytes(), &r); err != nil || len(r.Artifacts) != 4 {
		t.Fatalf("%v, artifacts: %+v", err, r.Artifacts)
	}
	command(t, first, "sha256sum", "--check", "--strict", sums)
	if err := os.WriteFile(filepath.Join(again, r.Artifacts[0].Name), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.Command("sha256sum", "--check", sums)
	check.Dir = again
	if check.Run() == nil {
		t.Error("SHA256SUMS verifies a file that was changed")
	}

	name := "edgelimit_1.2.3-rc.1_linux_" + runtime.GOARCH
	command(t, first, "tar", "-xzf", name+".tar.gz", "-C", dir)
	unpacked := filepath.Join(dir, name)
	binary := filepath.Join(unpacked, "edgelimit")
	if out := command(t, dir, binary, "version"); !strings.HasPrefix(out, "edgelimit "+version+" ") {
		t.Errorf("the archive's binary is %s", out)
	}
	for _, want := range []string{"README.md", "LICENSE", "CHANGELOG.md", "edgelimit.yaml", "systemd/edgelimit.service",
		"completions/edgelimit.bash", "completions/edgelimit.zsh", "completions/edgelimit.fish"} {
		if info, err := os.Stat(filepath.Join(unpacked, want)); err != nil || info.Size() == 0 {
			t.Errorf("%s in the archive: %v", want, err)
		}
	}
	checkSBOM(t, filepath.Join(first, name+".cdx.json"), filepath.Join(unpacked, "edgelimit"))
	checkPackage(t, first, filepath.Join(dir, "root"))
}

// checkSBOM holds that an SBOM lists the modules of a binary, and no others.
func checkSBOM(t *testing.T, sbom, binary string) {
	t.Helper()
	f, err := os.Open(sbom)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want = append(want, dep.Path+"@"+dep.Version)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.Name+"@"+c.Version)
	}
	if !slices.Equal(got, want) || len(got) < 20 {
		t.Errorf("the SBOM lists\n%v\nthe binary has\n%v", got, want)
	}
}

// checkPackage installs the .deb below root, and holds where its files are, what its scripts run and what systemd makes
// of its units.
func checkPackage(t *testing.T, dir, root string) {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	rpms, _ := filepath.Glob(filepath.Join(dir, "*.rpm"))
	if err != nil || len(debs) != 1 || len(rpms) != 1 {
		t.Fatalf("packages: %v, %v, %v", debs, rpms, err)
	}
	fields := command(t, dir, "dpkg-deb", "--field", debs[0], "Package", "Version", "Architecture")
	if !strings.Contains(fields, "Version: 1.2.3~rc.1\n") {
		t.Errorf("the .deb is %s", fields)
	}
	if head, err := os.ReadFile(rpms[0]); err != nil || !bytes.HasPrefix(head, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("%s is no RPM package: %v", rpms[0], err)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(root, "control")
	command(t, dir, "dpkg-deb", "--control", debs[0], control)
	if conffiles, err := os.ReadFile(filepath.Join(control, "conffiles")); err != nil ||
		strings.TrimSpace(string(conffiles)) != "/etc/edgelimit/edgelimit.yaml" {
		t.Errorf("conffiles: %q, %v", conffiles, err)
	}
	scripts := []string{"postinst", "prerm", "postrm"}
	for _, script := range scripts {
		command(t, control, "sh", "-n", script)
		text, err := os.ReadFile(filepath.Join(control, script))
		for _, verb := range []string{" start", " restart", " enable"} {
			if err != nil || strings.Contains(string(text), "systemctl"+verb) {
				t.Errorf("%s starts something by itself: %v\n%s", script, err, text)
			}
		}
	}
	// No script of it: they would ask the systemd of this machine.
	command(t, dir, "dpkg-deb", "--extract", debs[0], root)
	binary := filepath.Join(root, "usr/bin/edgelimit")
	if out := command(t, dir, binary, "version"); !strings.HasPrefix(out, "edgelimit "+version+" ") {
		t.Errorf("the package's binary is %s", out)
	}
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/edgelimit*"))
	if err != nil || len(units) != 3 {
		t.Fatalf("units: %v, %v", units, err)
	}
	// The unit names a binary that is installed below root only.
	service := filepath.Join(root, "usr/lib/systemd/system/edgelimit.service")
	text, err := os.ReadFile(service)
	if err != nil || !strings.Contains(string(text), "ExecStart=/usr/bin/edgelimit ") {
		t.Fatalf("%v, unit:\n%s", err, text)
	}
	moved := strings.Replace(string(text), "ExecStart=/usr/bin/", "ExecStart="+root+"/usr/bin/", 1)
	if err := os.WriteFile(service, []byte(moved), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := command(t, dir, "systemd-analyze", append([]string{"verify", "--man=no"}, units...)...); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
}

// command runs a program that has to succeed and returns what it prints.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestPackageVersion holds that packages sort as the versions do: nothing of git's is taken for a pre-release.
func TestPackageVersion(t *testing.T) {
	for from, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-g0123abc": "1.2.3+4.g0123abc",
		"v1.2.3-rc.1-4-g0123abc-dirty": "1.2.3-rc.1+4.g0123abc.dirty", "v1.2.3-dirty": "1.2.3+dirty",
		"0123abc": "0.0.0+g0123abc", "c0123ab-dirty": "0.0.0+gc0123ab.dirty",
	} {
		if got, err := packageVersion(from); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", from, got, err, want)
		}
	}
	for _, bad := range []string{"", "1.2.3", "v1.2", "latest", "v1.2.3 -X main.x=y", "v1.2.3/../.."} {
		if got, err := packageVersion(bad); err == nil {
			t.Errorf("%q is taken for %s", bad, got)
		}
	}
}

// TestRefused holds that a release that nobody could build again, or that would remove files, is refused with what to
// do.
func TestRefused(t *testing.T) {
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Other programs write a SHA256SUMS as well.
	if err := os.WriteFile(filepath.Join(out, sums), []byte("00  mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	command(t, ".", "git", "clone", "-q", "--depth=1", "--no-local", "../../..", clone)
	if err := os.WriteFile(filepath.Join(clone, "README.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ dir, args, want string }{
		{".", "--dirty --version v1.2.3 --out " + out, "name another folder with --out"},
		{".", "--dirty --version next", "want v1.2.3"},
		{".", "--targets linux", "want OS/ARCH"},
		{clone, "--version v1.2.3", "README.md"},
		{clone, "--version v1.2.3", "pass --dirty"},
	} {
		t.Chdir(test.dir)
		if err := run(strings.Fields(test.args), io.Discard, io.Discard); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "mine")); err != nil {
		t.Error(err)
	}
}

// TestMakefile holds that a release is built with the Makefile's tags.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil || !strings.Contains(string(text), "\nTAGS     = "+tags+"\n") {
		t.Errorf("the Makefile has other TAGS than %s (%v)", tags, err)
	}
}
