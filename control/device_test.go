package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// deviceDelete runs control device delete, which needs the database alone.
func (w *testEnv) deviceDelete(arguments ...string) outcome {
	var stdout, stderr logBuffer
	code := run(w.T.Context(), append([]string{"device", "delete", "--database-url=" + w.DB.ControlURL}, arguments...), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestDeviceDeletePrintsWhatItErasedAndNobodysID(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	w.Exec(`insert into devices (organization_id, id, user_id) values ($1, 'phone', 'anna'), ($1, 'tablet', 'anna'), ($1, 'lone', 'bob')`, organization.ID)
	w.Exec(`insert into identities (organization_id, user_id, traits) values ($1, 'anna', '{}'), ($1, 'bob', '{}')`, organization.ID)
	w.Exec(`insert into events (organization_id, id, device_id, user_id, name, occurred_at, received_at) values ($1, gen_random_uuid(), 'lone', 'anna', 'n', now(), now())`, organization.ID)
	type result struct {
		OrgKey                                string
		Devices, Identities, Sessions, Events int
		AuditID                               *string
	}
	for _, test := range []struct {
		arguments []string
		expected  result
	}{
		{[]string{"--user=anna"}, result{Devices: 2, Identities: 1, Events: 1}},
		{[]string{"lone"}, result{Devices: 1, Identities: 1}},
	} {
		got := w.deviceDelete(append([]string{"--org=" + strings.ToUpper(organization.OrgKey)}, test.arguments...)...)
		if got.code != 0 {
			t.Errorf("%v: %+v", test.arguments, got)
			continue
		}
		printed := testenv.DecodeReply[result](t, reply{Body: []byte(got.stdout)})
		entry := printed.AuditID
		printed.AuditID, test.expected.OrgKey = nil, organization.OrgKey
		if diff := cmp.Diff(test.expected, printed); diff != "" || entry == nil {
			t.Errorf("%v: %+v (-expected +got):\n%s", test.arguments, got, diff)
			continue
		}
		if all := got.stdout + got.stderr; strings.Contains(all, "anna") || strings.Contains(all, "lone") {
			t.Errorf("%v: %s names the person", test.arguments, all)
		}
		var actor string
		if err := w.Pool.QueryRow(t.Context(), `select actor_id from audit_log where id = $1 and action = 'device.delete'`, *entry).Scan(&actor); err != nil || actor != login() {
			t.Errorf("%v: the entry is by %q, %v; expected %q", test.arguments, actor, err, login())
		}
	}
	if got := w.deviceDelete("--org=zzzz", "phone"); got.code != exitFailed || !strings.Contains(got.stderr, "zzzz") {
		t.Errorf("%+v, expected that there is no such organization", got)
	}
}

func TestDeviceDeleteTakesADeviceOrAUser(t *testing.T) {
	t.Parallel()
	for arguments, good := range map[string]bool{
		"phone": true, "--user=u": true, "a.b_c-d:E9": true, "": false, "phone --user=u": false, "a/b": false, "--user=": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "--user=" + strings.Repeat("é", 255): true, "--user=" + strings.Repeat("é", 256): false,
	} {
		_, _, err := parseCommand(append([]string{"--database-url=postgres://a@b/c", "device", "delete", "--org=acme"}, strings.Fields(arguments)...),
			io.Discard, io.Discard, func(int) {})
		if (err == nil) != good {
			t.Errorf("%s: %v, expected it taken: %t", arguments, err, good)
		}
	}
	for arguments, good := range map[string]bool{"--retry-for=1s": true, "--retry-for=24h": true, "--retry-for=0s": false, "--retry-for=25h": false} {
		_, _, err := parseCommand([]string{"--database-url=postgres://a@b/c", "migrate", arguments}, io.Discard, io.Discard, func(int) {})
		if (err == nil) != good {
			t.Errorf("migrate %s: %v, expected it taken: %t", arguments, err, good)
		}
	}
}
