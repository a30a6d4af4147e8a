package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"deeplink/shared/catalog"
)

// operate runs an operator's command that needs only Postgres.
func (w *testEnv) operate(arguments ...string) outcome {
	w.T.Helper()
	var stdout, stderr logBuffer
	code := run(context.Background(), append(arguments, "--database-url="+w.DB.ControlURL), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestConsoleLinkIsPrintedForAnActiveOrganization(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Tenant(catalog.Scale)
	link := func(more ...string) outcome {
		return w.operate(append([]string{"console-link", "--org", o.OrgKey, "--role", "admin", "--console-url", "https://console.example.com"}, more...)...)
	}
	for ttl, lives := range map[string]time.Duration{"": 5 * time.Minute, "--ttl=1m": time.Minute, "--ttl=15m": 15 * time.Minute} {
		var more []string
		if ttl != "" {
			more = append(more, ttl)
		}
		got := link(more...)
		var printed map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &printed); err != nil || got.code != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		url, _ := printed["url"].(string)
		expires, err := time.Parse(time.RFC3339, printed["expiresAt"].(string))
		organization, _ := printed["organization"].(map[string]any)
		if prefix := "https://console.example.com/console/link#"; !strings.HasPrefix(url, prefix) || len(url) != len(prefix)+43 || err != nil ||
			(time.Until(expires)-lives).Abs() > time.Minute/2 || len(printed) != 4 || printed["role"] != "admin" ||
			len(organization) != 3 || organization["id"] != o.ID || organization["orgKey"] != o.OrgKey || organization["name"] != "Tenant" {
			t.Errorf("%s: %s", ttl, got.stdout)
		}
	}
	for _, bad := range [][]string{{"--ttl=59s"}, {"--ttl=15m1s"}, {"--role=boss"}, {"--console-url="}, {"--console-url=http://console.example.com"}} {
		if got := link(bad...); got.code != exitSettings || got.stdout != "" {
			t.Errorf("%s: %+v, expected exit code 2", bad, got)
		}
	}
	if got := w.operate("console-link", "--org", "none", "--role", "admin", "--console-url", "https://console.example.com"); got.code != exitFailed {
		t.Errorf("an unknown organization: %+v, expected exit code 1", got)
	}
	w.Exec(`update organizations set suspended = true where id = $1`, o.ID)
	if got := link(); got.code != exitFailed || !strings.Contains(got.stderr, "suspended") {
		t.Errorf("a suspended organization: %+v, expected exit code 1", got)
	}
}

func TestOperatorListsAndRevokesSessionsOfOneOrganization(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, other := w.Tenant(catalog.Scale), w.Tenant(catalog.Scale)
	for _, s := range []struct{ organization, subject string }{{o.ID, "ann"}, {o.ID, "ann"}, {o.ID, "bob"}, {o.ID, "eve"}, {other.ID, "ann"}} {
		w.Exec(`insert into console_sessions (id, cookie_hash, organization_id, via, issuer, subject, role, memberships, created_at, last_seen_at, ends_at, user_agent)
			values (gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), $1, 'provider', 'https://id.example', $2, 'owner', '[]', now(), now(), now() + interval '1 hour', 'x')`,
			s.organization, s.subject)
	}
	list := func() (all []struct{ ID, Subject, Role, Via string }) {
		t.Helper()
		got := w.operate("session", "list", "--org", o.OrgKey)
		if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.code != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		return all
	}
	all := list()
	if len(all) != 4 {
		t.Fatalf("%+v, expected 4 sessions", all)
	}
	eve := ""
	for _, s := range all {
		if s.Subject == "eve" {
			eve = s.ID
		}
	}
	left := 4
	for _, c := range []struct {
		arguments  []string
		code, gone int
	}{
		{nil, exitSettings, 0}, {[]string{"--all", "--subject=ann"}, exitSettings, 0}, {[]string{"--id=x"}, exitSettings, 0},
		{[]string{"--id=" + unknownID}, exitFailed, 0}, {[]string{"--id=" + eve}, 0, 1}, {[]string{"--id=" + eve}, exitFailed, 0},
		{[]string{"--subject=ann"}, 0, 2}, {[]string{"--subject=ann"}, 0, 0}, {[]string{"--all"}, 0, 1},
	} {
		got := w.operate(append([]string{"session", "revoke", "--org", o.OrgKey}, c.arguments...)...)
		left -= c.gone
		if got.code != c.code || len(list()) != left {
			t.Errorf("%s: %+v, %d sessions are left, expected exit code %d and %d sessions", c.arguments, got, len(list()), c.code, left)
		}
	}
	if rest := w.column(`select subject from console_sessions`); len(rest) != 1 {
		t.Errorf("%s are left, expected the session of the other organization", rest)
	}
	if audited := w.column(`select actor_type || ' ' || (detail->>'reason') from audit_log where action = 'session.end'`); len(audited) != 4 || audited[0] != "operator revoked" {
		t.Errorf("the audit trail has %q", audited)
	}
}
