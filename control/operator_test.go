package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// operator runs commands of the program against a test environment.
type operator struct {
	w    *testEnv
	path string
}

// run runs a command that must succeed, and reads its result, of which T must know every member.
func (o operator) run(t *testing.T, into any, arguments ...string) {
	t.Helper()
	got := runProgram(t, o.path, o.w.Settings(), arguments...)
	if got.code != 0 {
		t.Fatalf("control %v: exit code %d, expected 0; stderr: %s", arguments, got.code, got.stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil || decoder.More() {
		t.Fatalf("control %v: printed %s (%v), expected one JSON value of %s", arguments, got.stdout, err, reflect.TypeOf(into))
	}
}

type (
	createdResult struct {
		catalogOrganization
		ServerKey, ClientKey *string
		Propagation          string
	}
	changedResult struct {
		catalogOrganization
		Propagation string
	}
	// catalogOrganization is an organization as a reader of the JSON has it.
	catalogOrganization struct {
		ID, OrgKey, Name string
		ExternalID, Plan *string
		Suspended        bool
		CreatedAt        time.Time
	}
)

func TestOperatorsCommandsDoWhatTheySay(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := operator{w, testenv.Build(t)}
	control := w.serve()

	var created createdResult
	o.run(t, &created, "org", "create", "--name=Müller & Söhne", "--org-key=Ab12", "--external-id=org_1", "--plan=growth", "--app-config=demo")
	if created.OrgKey != "ab12" || created.Name != "Müller & Söhne" || *created.ExternalID != "org_1" || *created.Plan != "growth" || created.Propagation != "complete" {
		t.Errorf("org create: %+v", created)
	}
	for key, tier := range map[string]apikey.Tier{*created.ServerKey: apikey.Server, *created.ClientKey: apikey.Client} {
		if got, ok := apikey.Parse(key); !ok || got != tier {
			t.Errorf("org create printed a key of tier %q, expected %s", got, tier)
		}
	}
	c := control.client(*created.ServerKey)
	c.CreateLink(`{"path":"/a"}`)

	var free createdResult
	o.run(t, &free, "org", "create", "--name=Free", "--plan=free")
	if free.ServerKey != nil || free.ClientKey != nil || len(free.OrgKey) != 4 || free.ExternalID != nil {
		t.Errorf("org create with plan free: %+v, expected no keys and a generated org key", free)
	}
	var unplanned createdResult
	o.run(t, &unplanned, "org", "create", "--name=None")
	if unplanned.Plan != nil || unplanned.ServerKey != nil {
		t.Errorf("org create without a plan: %+v", unplanned)
	}
	var list []catalogOrganization
	o.run(t, &list, "org", "list")
	if diff := cmp.Diff([]catalogOrganization{created.catalogOrganization, free.catalogOrganization, unplanned.catalogOrganization}, list); diff != "" {
		t.Errorf("org list (-expected +got):\n%s", diff)
	}

	var changed changedResult
	o.run(t, &changed, "org", "suspend", "AB12")
	if r := c.Do("GET", "/links", ""); !changed.Suspended || changed.Propagation != "complete" || r.Status != 401 {
		t.Errorf("org suspend: %+v, then %s; expected 401", changed, r)
	}
	o.run(t, &changed, "org", "resume", "ab12")
	if r := c.Do("GET", "/links", ""); changed.Suspended || changed.Propagation != "complete" || r.Status != 200 {
		t.Errorf("org resume: %+v, then %s; expected 200", changed, r)
	}
	var planned catalogOrganization
	o.run(t, &planned, "org", "plan", "ab12", "none")
	if r := c.Do("GET", "/links", ""); planned.Plan != nil || r.Code() != "PLAN_NOT_SELECTED" {
		t.Errorf("org plan none: %+v, then %s", planned, r)
	}
	o.run(t, &planned, "org", "plan", "ab12", "enterprise")
	if r := c.Do("GET", "/links", ""); *planned.Plan != "enterprise" || r.Status != 200 {
		t.Errorf("org plan enterprise: %+v, then %s", planned, r)
	}

	var config struct {
		catalog.AppConfig
		Propagation string
	}
	o.run(t, &config, "org", "app-config", "ab12", "none")
	if r := c.Do("POST", "/links", `{"path":"/a"}`); config.Registered() || config.Propagation != "complete" || r.Code() != "APP_CONFIG_REQUIRED" {
		t.Errorf("org app-config none: %+v, then %s", config, r)
	}
	file := filepath.Join(t.TempDir(), "app.json")
	if err := os.WriteFile(file, []byte(`{"fallbackUrl":"https://example.org/","htmlErrorPages":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o.run(t, &config, "org", "app-config", "ab12", file)
	if r := c.Do("POST", "/links", `{"path":"/a"}`); *config.FallbackURL != "https://example.org/" || !config.HTMLErrorPages || r.Status != 201 {
		t.Errorf("org app-config FILE: %+v, then %s", config, r)
	}

	var key store.NewKey
	o.run(t, &key, "key", "regenerate", "ab12", "SERVER")
	if key.Tier != apikey.Server || key.Prefix != "svc_api_" || key.DisplayKey != "svc_api_…"+key.RawKey[len(key.RawKey)-4:] {
		t.Errorf("key regenerate: %+v", key)
	}
	if old, fresh := c.Do("GET", "/links", ""), control.client(key.RawKey).Do("GET", "/links", ""); old.Status != 401 || fresh.Status != 200 {
		t.Errorf("after key regenerate: the old key %s, the new one %s; expected 401 and 200", old, fresh)
	}

	type domainResult struct {
		ID, Host            string
		IsDefault, IsCustom bool
		Status              string
		CreatedAt           time.Time
		Verification        dnsverify.Record
		Propagation         string
	}
	var verified, pending domainResult
	o.run(t, &verified, "domain", "add", "ab12", "Links.Example.ORG.", "--verified")
	o.run(t, &pending, "domain", "add", "ab12", "other.example.org")
	if verified.Host != "links.example.org" || verified.Status != "verified" || !verified.IsCustom || verified.Propagation != "complete" ||
		pending.Status != "pending" || pending.Verification.Type != "TXT" || pending.Verification.Name != "_deeplink.other.example.org" ||
		!strings.HasPrefix(pending.Verification.Value, "deeplink-verification=") {
		t.Errorf("domain add: %+v, %+v", verified, pending)
	}
	link := control.client(key.RawKey).CreateLink(`{"path":"/a","shortCode":"own","domainId":"` + verified.ID + `"}`)
	if link.URL != "https://links.example.org/own" {
		t.Errorf("a link on the new domain has %s", link.URL)
	}

	w.DeafEdge(500*time.Millisecond, time.Hour)
	o.run(t, &changed, "org", "suspend", "ab12")
	if changed.Propagation != "pending" {
		t.Errorf("org suspend with a deaf edge: %+v, expected pending", changed)
	}
}

func TestBadCommandsAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	path := testenv.Build(t)
	organization := w.Organization(catalog.Growth)
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"ios":{"teamId":"x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "sekret"
	for _, test := range []struct {
		name        string
		environment []string
		arguments   []string
		code        int
		reason      string
	}{
		{"unknown command", nil, []string{"frobnicate"}, 2, "frobnicate"},
		{"unknown flag", nil, []string{"serve", "--frobnicate"}, 2, "--frobnicate"},
		{"half a command", nil, []string{"org"}, 2, "create"},
		{"no name", nil, []string{"org", "create"}, 2, "--name"},
		{"empty name", nil, []string{"org", "create", "--name="}, 2, "--name"},
		{"long name", nil, []string{"org", "create", "--name=" + strings.Repeat("a", 256)}, 2, "--name"},
		{"bad org key", nil, []string{"org", "create", "--name=x", "--org-key=abcde"}, 2, "--org-key"},
		{"reserved org key", nil, []string{"org", "create", "--name=x", "--org-key=data"}, 2, "--org-key"},
		{"taken org key", nil, []string{"org", "create", "--name=x", "--org-key=" + organization.OrgKey}, 1, "already used"},
		{"empty external id", nil, []string{"org", "create", "--name=x", "--external-id="}, 2, "--external-id"},
		{"unknown plan", nil, []string{"org", "create", "--name=x", "--plan=gold"}, 2, "gold"},
		{"missing file", nil, []string{"org", "create", "--name=x", "--app-config=/nowhere.json"}, 2, "/nowhere.json"},
		{"bad app config", nil, []string{"org", "app-config", organization.OrgKey, bad}, 2, "ios.teamId"},
		{"unknown organization", nil, []string{"org", "suspend", "zzzz"}, 1, "zzzz"},
		{"unknown plan to set", nil, []string{"org", "plan", organization.OrgKey, "gold"}, 2, "gold"},
		{"plan of an unknown organization", nil, []string{"org", "plan", "zzzz", "free"}, 1, "zzzz"},
		{"unknown tier", nil, []string{"key", "regenerate", organization.OrgKey, "server"}, 2, "SERVER or CLIENT"},
		{"key of an unknown organization", nil, []string{"key", "regenerate", "zzzz", "SERVER"}, 1, "zzzz"},
		{"bad host", nil, []string{"domain", "add", organization.OrgKey, "http://x"}, 2, "host"},
		{"the shared host", nil, []string{"domain", "add", organization.OrgKey, "go.example.com"}, 1, "already used"},
		{"one of the extra hosts", []string{"EDGE_EXTRA_HOSTS=new.example.com, OLD.example.com."}, []string{"domain", "add", organization.OrgKey, "Old.example.com", "--verified"}, 1, "already used"},
		{"bad extra host", []string{"EDGE_EXTRA_HOSTS=https://old.example.com"}, nil, 2, "edge-extra-hosts"},
		{"bad extra host of a command", []string{"EDGE_EXTRA_HOSTS=old.example.com:443"}, []string{"domain", "add", organization.OrgKey, "a.example"}, 2, "edge-extra-hosts"},
		{"no database", []string{"DATABASE_URL="}, []string{"migrate"}, 2, "DATABASE_URL"},
		{"bad database", []string{"DATABASE_URL=postgres://u:" + secret + "@h:port/d"}, []string{"migrate"}, 2, "DATABASE_URL"},
		{"database that is down", []string{"DATABASE_URL=postgres://u:" + secret + "@127.0.0.1:1/d"}, []string{"org", "list"}, 1, "unavailable"},
		{"bad Redis", []string{"REDIS_URL=redis://:" + secret + "@h/db"}, nil, 2, "REDIS_URL"},
		{"bad base", []string{"LINK_BASE_URL=https://go.example.com/x"}, nil, 2, "LINK_BASE_URL"},
		{"base without scheme", []string{"LINK_BASE_URL=go.example.com"}, nil, 2, "LINK_BASE_URL"},
		{"base in capitals", []string{"LINK_BASE_URL=https://GO.example.com"}, nil, 2, "LINK_BASE_URL"},
		{"bad proxies", []string{"TRUSTED_PROXIES=10.0.0.0/33"}, nil, 2, "TRUSTED_PROXIES"},
		{"bad address", []string{"CONTROL_ADDR=8081"}, nil, 2, "CONTROL_ADDR"},
		{"bad port", []string{"CONTROL_ADMIN_ADDR=127.0.0.1:70000"}, nil, 2, "CONTROL_ADMIN_ADDR"},
		{"bad duration", []string{"CONTROL_DRAIN=5"}, nil, 2, "CONTROL_DRAIN"},
		{"long duration", []string{"CONTROL_DRAIN=2m"}, nil, 2, "CONTROL_DRAIN"},
		{"no connections", []string{"CONTROL_DATABASE_CONNECTIONS=0"}, nil, 2, "CONTROL_DATABASE_CONNECTIONS"},
		{"too few connections for phones", []string{"CONTROL_SDK_DATABASE_CONNECTIONS=2"}, nil, 2, "CONTROL_SDK_DATABASE_CONNECTIONS"},
		{"bad level", []string{"LOG_LEVEL=loud"}, nil, 2, "LOG_LEVEL"},
		{"bad format", []string{"LOG_FORMAT=xml"}, nil, 2, "log-format"},
		{"taken port", []string{"CONTROL_ADDR=" + strings.TrimPrefix(w.serve().Base, "http://")}, nil, 1, "in use"},
	} {
		got := runProgram(t, path, append(w.Settings(), test.environment...), test.arguments...)
		if got.code != test.code || !strings.Contains(got.stderr, test.reason) || got.stdout != "" || strings.Contains(got.stderr, secret) {
			t.Errorf("%s: control %v: exit code %d, stdout %q, stderr %q; expected %d, nothing, and %q without secrets",
				test.name, test.arguments, got.code, got.stdout, got.stderr, test.code, test.reason)
		}
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://env@127.0.0.1:1/d")
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	t.Setenv("LINK_BASE_URL", "https://env.example.com/")
	t.Setenv("CONTROL_ADDR", ":1")
	t.Setenv("TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.1")
	t.Setenv("EDGE_EXTRA_HOSTS", "") // as compose.yaml passes it on when it is not set
	t.Setenv("LOG_FORMAT", "json")
	c, selected, err := parseCommand([]string{"--control-addr=:2", "--control-drain=3s"}, os.Stdout, os.Stderr, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if selected.Command() != "serve" || len(c.Serve.ExtraHosts) != 0 || c.Serve.Addr != ":2" || c.Serve.Drain != 3*time.Second || c.Serve.LinkBaseURL != "https://env.example.com" ||
		c.DatabaseURL != "postgres://env@127.0.0.1:1/d" || fmt.Sprint(c.Serve.TrustedProxies.Proxies) != "[10.0.0.0/8 192.0.2.1/32]" || c.LogFormat != "json" {
		t.Errorf("%s: %+v, expected serve with the flags over the environment", selected.Command(), c)
	}
}

func TestMigrateMayRunInSeveralProcessesAtOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	path := testenv.Build(t)
	w.Exec(`create database unmigrated`)
	t.Cleanup(func() { w.Exec(`drop database unmigrated with (force)`) })
	address, err := url.Parse(w.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/unmigrated"
	settings := testenv.Environ("DATABASE_URL=" + address.String())

	results := make([]outcome, 4)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = runProgram(t, path, settings, "migrate") })
	}
	group.Wait()
	worked := 0
	for _, r := range append(results, runProgram(t, path, settings, "migrate")) {
		var printed migrated
		if err := json.Unmarshal([]byte(r.stdout), &printed); err != nil || r.code != 0 {
			t.Fatalf("migrate: %+v (%v)", r, err)
		}
		if len(printed.Applied) > 0 {
			worked++
		}
	}
	if worked != 1 {
		t.Errorf("%d of 5 migrations did the work, expected one", worked)
	}
}

func TestOperatorsAreInTheAuditTrail(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	operator := operator{w, testenv.Build(t)}
	var result map[string]any
	operator.run(t, &result, "org", "create", "--name=Acme", "--org-key=acme", "--external-id=org_acme", "--plan=scale", "--app-config=demo")
	for _, arguments := range [][]string{
		{"org", "suspend", "acme"}, {"org", "resume", "acme"}, {"org", "plan", "acme", "none"}, {"org", "plan", "acme", "scale"},
		{"org", "app-config", "acme", "none"}, {"key", "regenerate", "acme", "SERVER"}, {"domain", "add", "acme", "go.acme.example", "--verified"},
	} {
		operator.run(t, &result, arguments...)
	}
	trail := p.serve().visit(p.Token("org_acme", "admin")).auditLog()
	var got []string
	for _, e := range trail.Data {
		got = append([]string{e.Action}, got...)
		if e.Actor.Type != "operator" || e.Actor.ID == nil || *e.Actor.ID != login() || e.IP != nil || e.RequestID != nil {
			t.Errorf("%+v, expected it to be by the operator %s", e, login())
		}
	}
	expected := []string{"organization.create", "organization.suspend", "organization.resume", "plan.update", "plan.update", "appConfig.update", "key.regenerate", "domain.create"}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("(-done +recorded):\n%s", diff)
	}
}
