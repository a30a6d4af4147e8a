// Package deploy holds what Deeplink is run with outside a developer's machine; see README.md. This file holds it to the programs.
package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// settings are a program's, each with its default; "" where there is none.
type settings map[string]string

// programs builds control and edge and returns their settings as each says them itself.
func programs(t *testing.T) map[string]settings {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "deeplink/control", "deeplink/edge").CombinedOutput(); err != nil {
		t.Fatalf("build control and edge: %v\n%s", err, out)
	}
	return map[string]settings{
		"control": settingsOf(t, filepath.Join(bin, "control"), "serve"),
		"edge":    settingsOf(t, filepath.Join(bin, "edge")),
	}
}

var (
	flagStart   = regexp.MustCompile(`(?m)^ +(?:-h, )?--`)
	flagVar     = regexp.MustCompile(`\(\$([A-Z0-9_]+)\)`)
	flagDefault = regexp.MustCompile(`^[a-z-]+=("[^"]*"|[a-z0-9]\S*)`)
)

// settingsOf reads a program's --help: each flag begins a line, shows its default, and ends with its variable. What takes a value and
// has no default shows a word in capitals.
func settingsOf(t *testing.T, program string, args ...string) settings {
	t.Helper()
	command := exec.Command(program, append(args, "--help")...)
	command.Env = []string{} // settings of this process are none of the program's
	help, err := command.Output()
	if err != nil {
		t.Fatalf("%s --help: %v", program, err)
	}
	all := settings{}
	for _, flag := range flagStart.Split(string(help), -1)[1:] {
		variable := flagVar.FindStringSubmatch(flag)
		if variable == nil {
			continue // --help itself
		}
		all[variable[1]] = ""
		if value := flagDefault.FindStringSubmatch(flag); value != nil {
			all[variable[1]] = strings.Trim(value[1], `"`)
		}
	}
	return all
}

// required have no default, and a program that does not start without them.
var required = []string{"DATABASE_URL", "LINK_BASE_URL", "REDIS_URL"}

var envLine = regexp.MustCompile(`^(#?)([A-Z][A-Z0-9_]*)=(.*)$`)

// TestFilesNameTheSettingsOfThePrograms has a setting found that is new, gone or another, and a typo: the programs ignore variables that
// they do not know.
func TestFilesNameTheSettingsOfThePrograms(t *testing.T) {
	t.Parallel()
	all := programs(t)
	t.Run("env files have every one, with its default", func(t *testing.T) { checkEnvFiles(t, all) })
	t.Run("no file has one that is none", func(t *testing.T) { checkNames(t, all) })
}

// checkEnvFiles wants of each setting: a text before it, and "#" unless it is required.
func checkEnvFiles(t *testing.T, all map[string]settings) {
	for program, expected := range all {
		file := filepath.Join("env", program+".env")
		documented, before := settings{}, ""
		for i, line := range strings.Split(read(t, file), "\n") {
			setting := envLine.FindStringSubmatch(line)
			if setting == nil {
				if line != "" && !strings.HasPrefix(line, "# ") {
					t.Errorf("%s:%d: neither text nor a setting: %s", file, i+1, line)
				}
				before = line
				continue
			}
			name, value := setting[2], setting[3]
			if !strings.HasPrefix(before, "# ") {
				t.Errorf("%s:%d: nothing is said about %s", file, i+1, name)
			}
			if _, twice := documented[name]; twice {
				t.Errorf("%s:%d: %s for the second time", file, i+1, name)
			}
			if isRequired := slices.Contains(required, name); isRequired == (setting[1] == "#") {
				t.Errorf("%s:%d: %s is required: %v, and commented out: %v", file, i+1, name, isRequired, !isRequired)
			} else if isRequired {
				value = ""
			}
			documented[name] = value
			before = ""
		}
		if diff := cmp.Diff(expected, documented); diff != "" {
			t.Errorf("%s (-%s --help +file):\n%s", file, program, diff)
		}
	}
}

// ofOthers are the names in capitals that are read by somebody else.
var ofOthers = []string{
	"GOMEMLIMIT", "GOMAXPROCS", // the Go runtime
	"CONTROL_PASSWORD", "EDGE_PASSWORD", // logins.sql
	"POSTGRES_PASSWORD", "POSTGRES_DB", "PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE", "REDIS_PASSWORD", // images of compose.yaml
	"DEEPLINK_VERSION", "CLICKS_PORT", "API_PORT", // compose.yaml itself
	"POD_IP",
}

// named finds the variables that a file sets or uses: keys of YAML and of env files, names of variables in manifests and units, and ${...}.
var named = regexp.MustCompile(`(?m)^[ #-]*([A-Z][A-Z0-9]*_[A-Z0-9_]*|GO[A-Z]+|PG[A-Z]+)(?:=|: )|[{,] ?([A-Z][A-Z0-9]*_[A-Z0-9_]*): |\b(?:name: |Environment=)([A-Z][A-Z0-9_]+)\b|\$\{([A-Z][A-Z0-9_]*)`)

func checkNames(t *testing.T, all map[string]settings) {
	known := map[string]bool{}
	for _, name := range ofOthers {
		known[name] = false
	}
	for _, s := range all {
		for name := range s {
			known[name] = true
		}
	}
	found := map[string]bool{}
	for _, folder := range []string{"compose*", "kubernetes/*", "kubernetes/*/*", "systemd/*"} {
		for _, file := range glob(t, folder) {
			for _, match := range named.FindAllStringSubmatch(read(t, file), -1) {
				name := strings.Join(match[1:], "")
				setting, ok := known[name]
				if !ok {
					t.Errorf("%s: %s is no setting of control or edge, nor of anybody else", file, name)
				}
				found[name] = found[name] || setting
			}
		}
	}
	for _, name := range append(required, "TRUSTED_PROXIES", "EDGE_SLOT", "MATCH_TOKEN_KEYS") {
		if !found[name] {
			t.Errorf("%s was found in no file: this test reads them wrong; it found %v", name, slices.Sorted(maps.Keys(found)))
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := link.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(links) == 0 {
		t.Error("no links were found: this test reads it wrong")
	}
	for _, match := range links {
		if _, err := os.Stat(match[1]); err != nil {
			t.Errorf("README.md: %v", err)
		}
	}
}

// afterDrain is within what time each program ends once its drain is over: what bounds the steps of its end, added up.
var afterDrain = map[string]time.Duration{"control": 15 * time.Second, "edge": 18 * time.Second}

// TestWhoeverKillsWaitsForTheDrain has it so in every file that says how long a program gets to end.
func TestWhoeverKillsWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	for program, after := range afterDrain {
		variable := strings.ToUpper(program) + "_DRAIN"
		for _, pair := range []struct{ drain, kill, of, in string }{
			{`(?m)^` + variable + `=(\S+)`, `terminationGracePeriodSeconds: (\d+)`, "kubernetes/serve/" + program + ".env", "kubernetes/serve/" + program + ".yaml"},
			{variable + `: (\S+)`, `(?s)x-` + program + `: &.*?stop_grace_period: (\S+)`, "compose.yaml", "compose.yaml"},
			{variable + `, which may be (1 m)`, `TimeoutStopSec=(\d+)`, "systemd/deeplink-" + program + ".service", "systemd/deeplink-" + program + ".service"},
		} {
			drain, kill := span(t, pair.of, pair.drain), span(t, pair.in, pair.kill)
			if kill < drain+after {
				t.Errorf("%s: killed after %v, but the drain of %v and %v more may pass", pair.in, kill, drain, after)
			}
		}
	}
}

// TestEdgesStayWhilePostgresIsAway demands that no readiness probe takes edges out that still answer from memory.
func TestEdgesStayWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	const file = "kubernetes/serve/edge.yaml"
	probe := regexp.MustCompile(`(?s)readinessProbe:.*?periodSeconds: (\d+).*?failureThreshold: (\d+)`).FindStringSubmatch(read(t, file))
	if probe == nil {
		t.Fatalf("%s: no readiness probe was found", file)
	}
	period, _ := strconv.Atoi(probe[1])
	failures, _ := strconv.Atoi(probe[2])
	answering := span(t, "env/edge.env", `(?m)^#EDGE_LEASE=(\S+)`) + span(t, "kubernetes/serve/edge.env", `(?m)^EDGE_STALE_IF_ERROR=(\S+)`)
	if out := time.Duration(period*(failures-1)) * time.Second; out < answering {
		t.Errorf("%s: an edge may be taken out %v after it was ready, but answers for %v", file, out, answering)
	}
}

// span returns the length of time that a file gives where the pattern finds it, in seconds when it has no unit.
func span(t *testing.T, file, pattern string) time.Duration {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
	if match == nil {
		t.Fatalf("%s: nothing is like %s", file, pattern)
	}
	text := strings.ReplaceAll(match[1], " ", "")
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return length
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || files == nil {
		t.Fatalf("%s: no files, %v", pattern, err)
	}
	return slices.DeleteFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.IsDir()
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
