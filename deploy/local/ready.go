package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ready is ready.json: the addresses and keys of everything, for programs.
type ready struct {
	EdgeURL      string       `json:"edgeUrl"`
	EdgeURLs     []string     `json:"edgeUrls"`
	ControlURL   string       `json:"controlUrl"`
	IdentityURL  string       `json:"identityUrl"`
	DatabaseURL  string       `json:"databaseUrl"` // of the database's owner
	RedisURL     string       `json:"redisUrl"`
	ConsoleURL   string       `json:"consoleUrl"`
	ConsoleLink  string       `json:"consoleLink"` // signs in to the demo organization as owner, once, within 15 minutes
	Organization organization `json:"organization"`
}

// shellFunctions are for a user who tries Deeplink in a terminal.
const shellFunctions = `
# portal_token [ROLE] prints a session token of the demo organization, valid for 60 seconds. ROLE: member, admin (default) or owner.
portal_token() { curl -s "$IDENTITY/token" --json "{\"org\":\"%s\",\"role\":\"${1:-admin}\"}" | field token; }

# control runs a command of control, such as: control org list
control() { %s "$@"; }

# field NAME prints a text field of the JSON object that it reads.
field() { sed -nE 's/.*"'"$1"'":"([^"]*)".*/\1/p'; }
`

// env returns the file env: the same as ready.json, for a shell. bin is the folder of the programs.
func (r ready) env(bin string) string {
	var text strings.Builder
	text.WriteString("# Written by `make run` for a shell: . .run/env\n")
	for _, v := range [][2]string{
		{"API", r.ControlURL}, {"EDGE", r.EdgeURLs[0]}, {"EDGE2", r.EdgeURLs[1]}, {"IDENTITY", r.IdentityURL},
		{"KEY", r.Organization.ServerKey}, {"SDK_KEY", r.Organization.ClientKey},
		{"AUTH", "Authorization: Bearer " + r.Organization.ServerKey}, {"SDK_AUTH", "Authorization: Bearer " + r.Organization.ClientKey},
	} {
		fmt.Fprintf(&text, "%s=%s\n", v[0], quote(v[1]))
	}
	text.WriteString("\n# For the commands of control and bench:\n")
	for _, v := range [][2]string{{"DATABASE_URL", r.DatabaseURL}, {"REDIS_URL", r.RedisURL}, {"LINK_BASE_URL", r.EdgeURL}, {"CONSOLE_URL", r.ControlURL}} {
		fmt.Fprintf(&text, "export %s=%s\n", v[0], quote(v[1]))
	}
	fmt.Fprintf(&text, shellFunctions, r.Organization.ExternalID, quote(filepath.Join(bin, "control")))
	return text.String()
}

// quote returns a word of the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// write creates ready.json and env in a folder, ready.json last: its readers wait for it.
func (r ready) write(dir string) error {
	if err := replace(filepath.Join(dir, "env"), []byte(r.env(filepath.Join(dir, "bin")))); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "ready.json"), r)
}

// remove removes both files: no program serves at their addresses any more.
func remove(dir string) error {
	for _, name := range []string{"ready.json", "env"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replace(file, append(text, '\n'))
}

// replace writes a file atomically: a reader finds the whole file or none, even if this process is killed meanwhile. Only the user may read
// it, because it contains keys.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
