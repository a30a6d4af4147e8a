package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/doctor"
	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/testenv"
	"deeplink/shared/bus"
	"deeplink/shared/testkit"
)

// liveEdge keeps the row of an edge moving until the test ends.
func (w *testEnv) liveEdge(slot, address string) {
	w.T.Helper()
	w.Exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, address) values ($1, gen_random_uuid(), 2000, 122000, nullif($2, ''))`, slot, address)
	w.repeat(`update edges set renewals = renewals + 1 where slot = $1`, slot)
}

// repeat runs a statement again and again until the test ends.
func (w *testEnv) repeat(sql string, arguments ...any) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if _, err := w.Pool.Exec(ctx, sql, arguments...); err != nil && ctx.Err() == nil {
				w.T.Errorf("%s: %v", sql, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	w.T.Cleanup(func() { cancel(); group.Wait() })
}

// answering returns the address of a server that answers as an edge of the version.
func answering(t *testing.T, version string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && r.Host == "go.example.com" {
			w.Header().Set(edgeclient.VersionHeader, version)
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (w *testEnv) doctor(flags ...string) (doctor.Examination, outcome) {
	w.T.Helper()
	got := w.command(append([]string{"doctor", "--format=json"}, flags...)...)
	if got.stdout == "" {
		w.T.Fatalf("%+v, expected a result", got)
	}
	result := testenv.DecodeReply[doctor.Examination](w.T, reply{Body: []byte(got.stdout)})
	if (result.Errors > 0) != (got.code == exitFailed) || result.Errors == 0 && got.code != 0 {
		w.T.Errorf("exit code %d with %d errors", got.code, result.Errors)
	}
	return result, got
}

// faultsOf returns the checks that are not ok, without two that depend on the test servers: they run without fsync, and other tests use their
// connections.
func faultsOf(e doctor.Examination) (all []string) {
	for _, f := range e.Checks {
		if f.Status != doctor.OK && f.Check != "fsync" && !(f.Check == "connections" && f.Status == doctor.Warning) {
			all = append(all, fmt.Sprintf("%s %s: %s", f.Status, f.Check, f.Found))
			if f.Do == "" {
				all = append(all, f.Check+" does not say what to do")
			}
		}
	}
	return all
}

func TestDoctorNamesEachPlantedFault(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, w *testEnv) (flags []string)
		// expected begins each line of what is wrong; anything may follow.
		expected []string
	}{
		{"none", func(t *testing.T, w *testEnv) []string { return nil }, nil},
		{"short URLs without TLS", func(t *testing.T, w *testEnv) []string { return []string{"--link-base-url=http://go.example.com"} },
			[]string{"warning settings: LINK_BASE_URL"}},
		{"wrong password", func(t *testing.T, w *testEnv) []string {
			address, err := url.Parse(w.DB.ControlURL)
			if err != nil {
				t.Fatal(err)
			}
			address.User = url.UserPassword(address.User.Username(), "sekret")
			w.DB.ControlURL = address.String()
			return nil
		}, []string{"error postgres: "}},
		{"Redis down", func(t *testing.T, w *testEnv) []string {
			if err := w.Redis.Kill(); err != nil {
				t.Fatal(err)
			}
			return nil
		}, []string{"error redis: "}},
		{"Redis that is a replica", func(t *testing.T, w *testEnv) []string {
			w.redisCommand("replicaof", "127.0.0.1", "1")
			return nil
		}, []string{"error redis state: this is a replica"}},
		{"one node of a Cluster", func(t *testing.T, w *testEnv) []string {
			return []string{"--redis-url=" + testkit.NewRedisCluster(t).Servers[0].URL()}
		}, []string{"error redis state: this is one node of a Cluster"}},
		{"a Sentinel as if it were Redis", func(t *testing.T, w *testEnv) []string {
			return []string{"--redis-url=" + testkit.NewSentinels(t).Watch[0].URL()}
		}, []string{"error redis pub/sub: publish", "error redis state: this is a Sentinel"}},
		{"no fault, with a Cluster", func(t *testing.T, w *testEnv) []string {
			return []string{"--redis-url=" + testkit.NewRedisCluster(t).URL()}
		}, nil},
		{"no fault, with Sentinels", func(t *testing.T, w *testEnv) []string {
			return []string{"--redis-url=" + testkit.NewSentinels(t).URL()}
		}, nil},
		{"Redis that writes all to disk", func(t *testing.T, w *testEnv) []string {
			w.redisCommand("config", "set", "appendonly", "yes")
			return nil
		}, []string{"warning redis state: it writes an append-only file"}},
		{"read only", func(t *testing.T, w *testEnv) []string {
			w.DB.ControlURL += "&default_transaction_read_only=on"
			return nil
		}, []string{"error primary: transactions are read only"}},
		{"missing grant", in(`revoke update on links from deeplink_control`), []string{"error grants: the role lacks UPDATE on links"}},
		{"missing right to a function", in(`revoke execute on function purge_audit_log() from deeplink_control`), []string{"error grants: the role lacks EXECUTE of purge_audit_log()"}},
		{"more rights than needed", in(`grant truncate on links to deeplink_control`), []string{"warning grants: the role can do more than control needs: TRUNCATE on links"}},
		{"the owner's login", func(t *testing.T, w *testEnv) []string { w.DB.ControlURL = w.DB.URL; return nil },
			[]string{"warning grants: the role can do more than control needs: superuser"}},
		{"synchronous_commit off", inDatabase(`alter database %s set synchronous_commit = off`), []string{"warning synchronous_commit: it is off"}},
		{"missing migration", in(`delete from goose_db_version where version_id = 10`), []string{"error migrations: the database lacks [10]"}},
		{"migration of a newer control", in(`insert into goose_db_version (version_id, is_applied) values (9999, true)`), []string{"warning migrations: the database has [9999]"}},
		{"stale edge", in(`insert into edges (slot, incarnation, lease_ms, hold_ms) values ('dead', gen_random_uuid(), 1000, 1000)`),
			[]string{"error edge leases: not renewed: dead"}},
		{"unreachable edge", func(t *testing.T, w *testEnv) []string { w.liveEdge("lost", testenv.FreeAddress(t)); return nil },
			[]string{"error edge addresses: not reached: lost at"}},
		{"edge of another version", func(t *testing.T, w *testEnv) []string { w.liveEdge("new", answering(t, "2")); return nil },
			[]string{"warning edge versions: new has 2"}},
		{"edges of two releases", in(`update edges set release = 'v1'; insert into edges (slot, incarnation, lease_ms, hold_ms, release) values ('dead', gen_random_uuid(), 1000, 1000, 'v2')`),
			[]string{"error edge leases: not renewed: dead", "warning releases: v1: healthy; v2: dead"}},
		{"two edges in one slot", func(t *testing.T, w *testEnv) []string {
			w.Exec(`insert into edges (slot, incarnation, lease_ms, hold_ms) values ('both', gen_random_uuid(), 2000, 2000)`)
			w.repeat(`update edges set incarnation = gen_random_uuid() where slot = 'both'`)
			return nil
		}, []string{"error edge slots: slot both changed its edge"}},
		{"two slots at one address", func(t *testing.T, w *testEnv) []string {
			address := answering(t, edgeclient.Version)
			w.liveEdge("one", address)
			w.liveEdge("two", address)
			return nil
		}, []string{"error edge slots: slots one and two are both at"}},
		{"no edge", in(`delete from edges`), []string{"warning edges: none is registered"}},
		{"invalid index", in(`update pg_index set indisvalid = false where indexrelid = 'links_text'::regclass`), []string{"error indexes: missing or invalid: links_text"}},
		{"missing index", in(`drop index links_tags`), []string{"error indexes: missing or invalid: links_tags"}},
		{"trigger that does not fire", in(`alter table links disable trigger links_changed_update`), []string{"error triggers: disabled: links.links_changed_update"}},
		{"missing partitions", in(`do $$ declare p text; begin
			for p in select relname from pg_class where relname like 'events\_2%' and relkind = 'r' order by 1 desc limit 3 loop execute 'drop table ' || p; end loop; end $$`),
			[]string{"error event partitions: missing for"}},
		{"missing audit partitions", in(`do $$ declare p text; begin
			for p in select relname from pg_class where relname like 'audit\_log\_2%' and relkind = 'r' order by 1 desc limit 3 loop execute 'drop table ' || p; end loop; end $$`),
			[]string{"error audit partitions: missing for"}},
		{"stored responses that no control purges", in(`with o as (insert into organizations (id, org_key, name) values (gen_random_uuid(), 'keys', 'Keys') returning id)
			insert into idempotency_keys (organization_id, scope, fingerprint, status, body, xid, is_create, is_bulk, created_at)
			select id, sha256('a'), sha256('b'), 201, '{}', '1', true, false, now() - interval '26 hours' from o`),
			[]string{"warning idempotency keys: the purge of stored responses is 2h0m0s overdue"}},
		{"a transaction that is open for an hour", func(t *testing.T, w *testEnv) []string {
			w.Exec(testenv.OlderTransactions)
			w.LeaveOpen("forgotten")
			return nil
		}, []string{"warning transactions: open for more than an hour: pid "}},
		{"an owner who does not see other sessions", in(`create or replace function hidden_sessions() returns bigint language sql as 'select 3::bigint'`),
			[]string{"warning transactions: no visible one has been open for an hour, but 3 sessions"}},
		{"no fault, with an identity provider", func(t *testing.T, w *testEnv) []string { return w.console(t, nil) }, nil},
		{"another issuer", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"issuer": "https://other.example"})
		},
			[]string{"error console URL: the control there cannot use the identity provider", "error identity provider: the discovery document is malformed, or its issuer differs"}},
		{"no S256", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"code_challenge_methods_supported": []string{"plain"}})
		}, []string{"error console URL: the control there cannot use the identity provider", "error identity provider: it does not support PKCE with S256"}},
		{"no code flow", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"response_types_supported": []string{"id_token"}})
		}, []string{"warning identity provider: it does not list the authorization code flow"}},
		{"no algorithm", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"id_token_signing_alg_values_supported": []string{"HS256", "PS256"}})
		}, []string{"warning identity provider: it signs ID tokens with none of RS256, ES256 and EdDSA"}},
		{"no offline_access", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"scopes_supported": []string{"openid"}})
		}, []string{"warning identity provider: it does not list the scope offline_access"}},
		{"the provider's clock is behind", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"clock": -10 * time.Second})
		},
			[]string{"warning identity provider: its clock differs by -10s"}},
		{"the provider's clock is ahead", func(t *testing.T, w *testEnv) []string {
			return w.console(t, map[string]any{"clock": 10 * time.Second})
		},
			[]string{"warning identity provider: its clock differs by "}},
		{"the console URL of nothing", func(t *testing.T, w *testEnv) []string {
			return []string{"--console-url=http://" + testenv.FreeAddress(t)}
		},
			[]string{"warning console URL: not reached from here"}},
		{"the console URL of another server", func(t *testing.T, w *testEnv) []string { return []string{"--console-url=http://" + answering(t, "1")} },
			[]string{"error console URL: the server there is no control: status 200"}},
		{"a control with another console URL", func(t *testing.T, w *testEnv) []string {
			_, port, _ := strings.Cut(w.consoleControl(t, "http://localhost:1"), ":")
			return []string{"--console-url=http://127.0.0.1:" + port}
		}, []string{"error console URL: the control there has another CONSOLE_URL"}},
		{"a control without the provider", func(t *testing.T, w *testEnv) []string {
			flags := w.console(t, nil)
			address := w.consoleControl(t, "")
			return append(flags, "--console-url=http://"+address)
		}, []string{"error console URL: the control there has no CONSOLE_OIDC_ISSUER"}},
		{"a control of another deployment", func(t *testing.T, w *testEnv) []string {
			return newTestEnv(t).console(t, nil)
		}, []string{"error console URL: the control there is of another deployment"}},
		{"sessions that no key decrypts", func(t *testing.T, w *testEnv) []string {
			flags := w.console(t, nil)
			w.Exec(consoleSessionSQL, []byte("\xff\xff\xff\xffsealed"), []byte("\xff\xff\xff\xffsealed"))
			return flags
		}, []string{"warning console sessions: no key decrypts 1 of 1"}},
		{"sessions without a refresh token", func(t *testing.T, w *testEnv) []string {
			flags := w.console(t, nil)
			w.Exec(consoleSessionSQL, nil, nil)
			return flags
		}, []string{"warning console sessions: 1 of 1 have no refresh token"}},
		{"too few connections", inDatabase(`alter database %s connection limit 10`), []string{"error connections: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			if test.name != "no edge" {
				w.liveEdge("healthy", answering(t, edgeclient.Version))
			}
			// Those of a week and of half a year from now, if the day has changed since the database was made.
			w.Exec("select make_event_partitions(7), make_audit_partitions(6)")
			flags := test.plant(t, w)
			var got outcome
			await(t, "answers in time", func() error {
				var result doctor.Examination
				result, got = w.doctor(flags...)
				faults := faultsOf(result)
				if slices.EqualFunc(test.expected, faults, func(expected, fault string) bool { return strings.HasPrefix(fault, expected) }) {
					return nil
				}
				if slices.ContainsFunc(faults, isLate) {
					return fmt.Errorf("%q, expected %q", faults, test.expected)
				}
				t.Errorf("%q, expected %q", faults, test.expected)
				return nil
			})
			if strings.Contains(got.stdout+got.stderr, "sekret") {
				t.Errorf("%+v has a password in it", got)
			}
		})
	}
}

// isLate reports whether something was found because a server did not answer in time, as may happen on a busy machine.
func isLate(found string) bool {
	return strings.Contains(found, "i/o timeout") || strings.Contains(found, "deadline exceeded")
}

// in plants a fault by SQL, as the superuser.
func in(sql string) func(*testing.T, *testEnv) []string {
	return func(t *testing.T, w *testEnv) []string {
		w.Exec(sql)
		return nil
	}
}

// inDatabase is in for a statement with the name of the database.
func inDatabase(sql string) func(*testing.T, *testEnv) []string {
	return func(t *testing.T, w *testEnv) []string {
		address, err := url.Parse(w.DB.URL)
		if err != nil {
			t.Fatal(err)
		}
		w.Exec(fmt.Sprintf(sql, strings.TrimPrefix(address.Path, "/")))
		return nil
	}
}

func (w *testEnv) redisCommand(words ...any) {
	w.T.Helper()
	client, err := bus.Open(w.Redis.URL())
	if err != nil {
		w.T.Fatal(err)
	}
	defer client.Close()
	if err := client.Do(context.Background(), words...).Err(); err != nil {
		w.T.Fatal(err)
	}
}

func TestDoctorPrintsACheckOnALine(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.liveEdge("healthy", answering(t, edgeclient.Version))
	w.Exec("select make_event_partitions(7), make_audit_partitions(6)")
	var got outcome
	var result doctor.Examination
	await(t, "answers in time", func() error {
		got = w.command("doctor")
		result, _ = w.doctor()
		if late := got.code != 0 && isLate(got.stdout) || slices.ContainsFunc(faultsOf(result), isLate); late {
			return errors.New(got.stdout)
		}
		return nil
	})
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != 0 || len(lines) != len(result.Checks) {
		t.Fatalf("%+v, expected %d lines", got, len(result.Checks))
	}
	for i, f := range result.Checks {
		if f.Check == "connections" {
			continue // other tests take some of them, now more and now fewer
		}
		if fields := strings.Fields(lines[i]); fields[0] != string(f.Status) || !strings.Contains(lines[i], f.Check) || !strings.HasSuffix(lines[i], f.Do) {
			t.Errorf("%q, expected %+v", lines[i], f)
		}
	}
	if got := w.command("doctor", "--control-database-connections=0"); got.code != exitSettings || !strings.Contains(got.stderr, "CONTROL_DATABASE_CONNECTIONS") {
		t.Errorf("%+v, expected the setting to be named", got)
	}
}
