// Package deploy holds the files with which operators run Deeplink; see README.md. The tests compare them with the programs.
package deploy

import (
	"io/fs"
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

	"deeplink/deploy/stack"

	"github.com/google/go-cmp/cmp"
)

// settings are the settings of a program, each with its default; "" without one.
type settings map[string]string

// programs builds control and edge and returns the settings that each prints.
func programs(t *testing.T) map[string]settings {
	t.Helper()
	bin := t.TempDir()
	if err := stack.Build(t.Context(), bin); err != nil {
		t.Fatal(err)
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

// settingsOf parses a program's --help: each flag starts a line, shows its default, and ends with its variable. A flag with a value but
// without a default shows a placeholder in capitals.
func settingsOf(t *testing.T, program string, args ...string) settings {
	t.Helper()
	command := exec.Command(program, append(args, "--help")...)
	command.Env = []string{} // the program gets no settings from this process
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

// required are the settings without a default, without which a program does not start.
var required = []string{"DATABASE_URL", "LINK_BASE_URL", "REDIS_URL"}

var envLine = regexp.MustCompile(`^(#?)([A-Z][A-Z0-9_]*)=(.*)$`)

// TestFilesNameOnlySettingsThatExist finds new, removed, renamed and misspelled settings: the programs ignore unknown variables.
func TestFilesNameOnlySettingsThatExist(t *testing.T) {
	t.Parallel()
	all := programs(t)
	t.Run("env files have each, with its default", func(t *testing.T) { checkEnvFiles(t, all) })
	t.Run("no file has an unknown one", func(t *testing.T) { checkNames(t, all) })
}

// checkEnvFiles requires for each setting: a comment before it, and "#" unless it is required.
func checkEnvFiles(t *testing.T, all map[string]settings) {
	for program, expected := range all {
		file := filepath.Join("env", program+".env")
		documented, before := settings{}, ""
		for i, line := range strings.Split(read(t, file), "\n") {
			setting := envLine.FindStringSubmatch(line)
			if setting == nil {
				if line != "" && !strings.HasPrefix(line, "# ") {
					t.Errorf("%s:%d: neither a comment nor a setting: %s", file, i+1, line)
				}
				before = line
				continue
			}
			name, value := setting[2], setting[3]
			if !strings.HasPrefix(before, "# ") {
				t.Errorf("%s:%d: no comment about %s", file, i+1, name)
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

// ofOthers are variables of other programs.
var ofOthers = []string{
	"GOMEMLIMIT", "GOMAXPROCS", // the Go runtime
	"CONTROL_PASSWORD", "EDGE_PASSWORD", // logins.sql
	"POSTGRES_PASSWORD", "POSTGRES_DB", "PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE", "REDIS_PASSWORD", "KC_BOOTSTRAP_ADMIN_USERNAME", "KC_BOOTSTRAP_ADMIN_PASSWORD", // images of compose.yaml
	"DEEPLINK_VERSION", "CLICKS_PORT", "API_PORT", "PROMETHEUS_PORT", // compose.yaml itself
	"API_URL", "ACME_EMAIL", "EDGES", "CONTROLS", // proxy/Caddyfile
	"RUNBOOK_URL",   // prometheus/prometheus.example.yml
	"PGSSLROOTCERT", // kubernetes/logins
	"POD_IP",
}

// named matches the variables that a file sets or uses: keys of YAML and of env files, names of variables in manifests and units, and
// ${...}.
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
	for _, folder := range []string{"compose*", "kubernetes/*", "kubernetes/*/*", "kubernetes/*/*/*", "systemd/*"} {
		for _, file := range glob(t, folder) {
			for _, match := range named.FindAllStringSubmatch(read(t, file), -1) {
				name := strings.Join(match[1:], "")
				setting, ok := known[name]
				if !ok {
					t.Errorf("%s: %s is not a setting of control, edge or another program", file, name)
				}
				found[name] = found[name] || setting
			}
		}
	}
	for _, name := range append(required, "TRUSTED_PROXIES", "EDGE_SLOT", "MATCH_TOKEN_KEYS") {
		if !found[name] {
			t.Errorf("%s was found in no file: the test parses them incorrectly; it found %v", name, slices.Sorted(maps.Keys(found)))
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestLinksOfDocumentsLeadSomewhere checks the files of this folder; .ci/docs checks all files, and headings.
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"README.md", "UPGRADING.md", "troubleshooting.md", "runbook.md"} {
		links := link.FindAllStringSubmatch(read(t, document), -1)
		if len(links) == 0 {
			t.Errorf("%s: no links found: the test parses it incorrectly", document)
		}
		for _, match := range links {
			if strings.HasPrefix(match[1], "../") {
				continue
			}
			if _, err := os.Stat(match[1]); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
}

// TestEveryDeploymentGivesBothProgramsTheExtraHosts: control must reject the hosts that edges serve as shared hosts.
func TestEveryDeploymentGivesBothProgramsTheExtraHosts(t *testing.T) {
	t.Parallel()
	compose := read(t, "compose.yaml")
	settings := regexp.MustCompile(`(?s)\nx-settings: &settings\n(.*?)\n\n`).FindStringSubmatch(compose)
	if settings == nil || !strings.Contains(settings[1], "  EDGE_EXTRA_HOSTS: ${EDGE_EXTRA_HOSTS:-}") {
		t.Errorf("compose.yaml: the settings of both programs have no EDGE_EXTRA_HOSTS")
	}
	for _, program := range []string{"control", "edge"} {
		if !regexp.MustCompile(`(?m)^x-` + program + `-settings: &\S+\n  <<: \*settings$`).MatchString(compose) {
			t.Errorf("compose.yaml: the settings of %s do not include those of both programs", program)
		}
		if file := "kubernetes/serve/" + program + ".yaml"; !strings.Contains(read(t, file), "configMapRef: {name: shared}") {
			t.Errorf("%s does not read shared.env", file)
		}
		for _, file := range []string{"env/" + program + ".env", "kubernetes/serve/shared.env"} {
			if !strings.Contains(read(t, file), "\n#EDGE_EXTRA_HOSTS=\n") {
				t.Errorf("%s does not mention EDGE_EXTRA_HOSTS", file)
			}
		}
	}
}

// afterDrain is how long each program takes at most to end after its drain: the sum of the bounds of its steps.
var afterDrain = map[string]time.Duration{"control": 20 * time.Second, "edge": 18 * time.Second}

// TestKillWaitsForDrain checks every file with a stop timeout.
func TestKillWaitsForDrain(t *testing.T) {
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
				t.Errorf("%s: killed after %v, but the drain of %v and the stop can take %v more", pair.in, kill, drain, after)
			}
		}
	}
}

// TestReadinessProbeKeepsEdgesThatServeFromMemory checks that an edge stays in service while Postgres is away.
func TestReadinessProbeKeepsEdgesThatServeFromMemory(t *testing.T) {
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
		t.Errorf("%s: an edge may be removed %v after it was ready, but can serve for %v", file, out, answering)
	}
}

// span returns the duration that the pattern finds in a file, in seconds if it has no unit.
func span(t *testing.T, file, pattern string) time.Duration {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
	if match == nil {
		t.Fatalf("%s: nothing matches %s", file, pattern)
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

// quoted matches a message of the programs in a document: in code marks and quotes.
var quoted = regexp.MustCompile("`\"([^\"`]+)\"`")

// TestQuotedMessagesExist: an operator searches for these texts in logs and responses.
func TestQuotedMessagesExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	for _, folder := range []string{"../edge", "../control", "../shared"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				source.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range []string{"troubleshooting.md", "runbook.md"} {
		messages := quoted.FindAllStringSubmatch(read(t, document), -1)
		if len(messages) == 0 {
			t.Errorf("%s: no quoted message found: the test parses it incorrectly", document)
		}
		for _, message := range messages {
			if !strings.Contains(source.String(), message[1]) {
				t.Errorf("%s quotes %q, which no program writes", document, message[1])
			}
		}
	}
}
