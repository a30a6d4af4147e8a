package store_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// writes returns all writes by an actor, by their names in [store.Store]. Each of them would change something.
func (f fixture) writes() map[string]func(store.Actor) error {
	ctx := f.Context()
	org := f.organization(catalog.Scale)
	link := f.create(org, `{"path": "/a"}`)
	f.exec(`update links set created_at = now() - interval '1 hour'`)
	domain := func(host string) string {
		d, _, _, err := f.store.AddDomain(ctx, testActor, org.ID, store.Unconditional, host, false)
		if err != nil {
			f.Fatal(err)
		}
		return d.ID
	}
	first, second := domain("one.acme.example"), domain("two.acme.example")
	other := f.organization(catalog.Scale)
	claimed := f.claim(other, "moving.acme.example")
	f.owned(org, claimed.Host)
	if d := f.verify(other, claimed.ID, f.proofs(claimed)); d.Transfer == nil {
		f.Fatalf("%+v, expected a transfer", d)
	}
	f.waitingIsOver(claimed.Host)
	for device, user := range map[string]string{"phone": "bob", "tablet": "anna"} {
		if err := f.store.Identify(ctx, org.ID, device, user, nil); err != nil {
			f.Fatal(err)
		}
	}
	imported := read(f.T, `{"path": "/b", "shortCode": "imported"}`)
	imported.DomainID = link.DomainID
	signedIn, lease := store.NewID(), store.NewID()
	f.exec(`insert into console_sessions (id, cookie_hash, organization_id, via, role, memberships, lease_id, created_at, last_seen_at, ends_at, user_agent)
		values ($1, sha256('cookie'), $2, 'provider', 'owner', '[{"externalId": "org_signed_in", "role": "owner"}]', $3, now(), now(), now() + interval '1 hour', '')`,
		signedIn, org.ID, lease)
	f.exec(`update organizations set external_id = 'org_signed_in' where id = $1`, other.ID)
	unspent := store.ConsoleLink{ID: store.NewID(), Organization: org, Role: "owner", Operator: "o"}
	f.exec(`insert into console_links (id, token_hash, organization_id, role, operator, created_at, expires_at)
		values ($1, sha256('token'), $2, 'owner', 'o', now(), now() + interval '1 hour')`, unspent.ID, org.ID)
	return map[string]func(store.Actor) error{
		"CreateOrganization": func(a store.Actor) error {
			_, _, err := f.store.CreateOrganization(ctx, a, store.NewOrganization{Name: "Other"})
			return err
		},
		"SetPlan":      func(a store.Actor) error { _, err := f.store.SetPlan(ctx, a, org.OrgKey, nil); return err },
		"SetSuspended": func(a store.Actor) error { _, _, err := f.store.SetSuspended(ctx, a, org.OrgKey, true); return err },
		"SetAppConfig": func(a store.Actor) error {
			_, err := f.store.SetAppConfig(ctx, a, org.ID, store.Unconditional, catalog.AppConfig{})
			return err
		},
		"ReplaceKey": func(a store.Actor) error {
			_, err := f.store.ReplaceKey(ctx, a, org.ID, store.Unconditional, apikey.Server, 0)
			return err
		},
		"AddDomain": func(a store.Actor) error {
			_, _, _, err := f.store.AddDomain(ctx, a, org.ID, store.Unconditional, "three.acme.example", true)
			return err
		},
		"VerifyDomain": func(a store.Actor) error {
			_, _, err := f.store.VerifyDomain(ctx, a, org.ID, store.Unconditional, first, f.proofs(catalog.Domain{ID: first}))
			return err
		},
		"DeleteDomain": func(a store.Actor) error {
			_, err := f.store.DeleteDomain(ctx, a, org.ID, store.Unconditional, second)
			return err
		},
		"SettleHost": func(a store.Actor) error {
			_, _, err := f.store.SettleHost(ctx, a, claimed.Host, f.proofs(claimed))
			return err
		},
		"CreateLink": func(a store.Actor) error {
			_, _, err := f.store.CreateLink(ctx, a, org.ID, store.Unconditional, catalog.Link{Path: "x"})
			return err
		},
		"UpdateLink": func(a store.Actor) error {
			_, _, err := f.store.UpdateLink(ctx, a, org.ID, store.Unconditional, link.ID, readPatch(f.T, `{"path": "/c"}`))
			return err
		},
		"DeleteLink": func(a store.Actor) error {
			_, err := f.store.DeleteLink(ctx, a, org.ID, store.Unconditional, link.ID)
			return err
		},
		"WriteLink": func(a store.Actor) error {
			key := &store.IdempotencyKey{Scope: [32]byte{1}}
			_, err := f.store.WriteLink(ctx, a, store.Write{OrganizationID: org.ID, Require: store.Unconditional, Key: key},
				store.Operation{Kind: store.CreateLink, Link: catalog.Link{Path: "x"}}, func(catalog.LinkWithDomain, store.Result) (store.Response, error) {
					return store.Response{Status: 201, Body: []byte("{}")}, nil
				})
			return err
		},
		"WriteLinks": func(a store.Actor) error {
			_, _, err := f.store.WriteLinks(ctx, a, store.Write{OrganizationID: org.ID, Require: store.Unconditional},
				[]store.BulkOperation{{Operation: store.Operation{Kind: store.CreateLink, Link: catalog.Link{Path: "x"}}}}, false, func([]store.BulkOutcome) (store.Response, error) {
					return store.Response{Status: 200, Body: []byte("{}")}, nil
				})
			return err
		},
		"DeleteOldLinks": func(a store.Actor) error {
			_, _, err := f.store.DeleteOldLinks(ctx, a, org.ID, time.Minute)
			return err
		},
		"DeleteDevice": func(a store.Actor) error { _, err := f.store.DeleteDevice(ctx, a, org.ID, "phone"); return err },
		"DeleteUser":   func(a store.Actor) error { _, err := f.store.DeleteUser(ctx, a, org.ID, "anna"); return err },
		"CreateConsoleSession": func(a store.Actor) error {
			return f.store.CreateConsoleSession(ctx, a, store.NewConsoleSession{ID: store.NewID(), CookieHash: [32]byte{9}, Via: store.ViaLink, OrganizationID: org.ID})
		},
		"EndConsoleSession": func(a store.Actor) error {
			return f.store.EndConsoleSession(ctx, a, store.ConsoleSession{ID: signedIn}, store.EndSignOut)
		},
		"EndLeasedSession": func(a store.Actor) error {
			return f.store.EndLeasedSession(ctx, a, store.ConsoleLease{ID: lease, SessionID: signedIn})
		},
		"SwitchConsoleSession": func(a store.Actor) error {
			return f.store.SwitchConsoleSession(ctx, a, store.ConsoleSession{ID: signedIn}, store.NewID(), [32]byte{8}, "org_signed_in", time.Time{},
				func(t store.SealedTokens) (store.SealedTokens, error) { return t, nil })
		},
		"RevokeConsoleSessions": func(a store.Actor) error {
			_, err := f.store.RevokeConsoleSessions(ctx, a, org.ID, store.ConsolePerson{}, time.Time{})
			return err
		},
		"CreateConsoleLink": func(a store.Actor) error {
			return f.store.CreateConsoleLink(ctx, a, store.Unconditional, store.ConsoleLink{ID: store.NewID(), Organization: org, Role: "owner", Operator: "o", ExpiresAt: time.Now()}, [32]byte{7}, time.Now())
		},
		"SpendConsoleLink": func(a store.Actor) error {
			return f.store.SpendConsoleLink(ctx, a, unspent, store.NewConsoleSession{ID: store.NewID(), CookieHash: [32]byte{6}, CreatedAt: time.Now(), EndsAt: time.Now()})
		},
		"ImportLinks": func(a store.Actor) error {
			_, err := f.store.ImportLinks(ctx, a, org.ID, []store.ImportedLink{{Link: imported}})
			return err
		},
	}
}

// state returns a digest of everything that writes by an actor can change.
func (f fixture) state() (digest string) {
	for _, table := range []string{"organizations", "app_configs", "domains", "domain_transfers", "api_keys", "links", "link_usage", "deleted_links", "changes", "devices", "identities", "audit_log", "console_sessions", "console_links"} {
		digest += table + " " + one[string](f, `select coalesce(md5(string_agg(t::text, ' ' order by t::text)), '') from `+table+` t`) + "\n"
	}
	return digest
}

func TestWriteNeedsAnActorAndAnAuditEntry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store = f.store.WithAuditHook(func(r store.Recorded) { t.Errorf("the hook was called with %+v", r) })
	f.exec(`alter table audit_log add check (actor_id <> 'refused')`)
	writes := f.writes()
	before := f.state()
	for name, write := range writes {
		for what, actor := range map[string]store.Actor{
			"the zero actor": {}, "a key without an id": store.KeyActor(store.Credential{}, netip.Addr{}, "r"),
			"an operator without a login": store.OperatorActor(""), "a job without a name": store.SystemActor(""), "a job for tenants without a name": store.ServiceActor(""),
		} {
			expect(t, name+" by "+what, write(actor), store.ErrNoActor)
		}
		if err := write(store.OperatorActor("refused")); err == nil || !strings.Contains(err.Error(), "audit_log") {
			t.Errorf("%s by an actor that the audit trail rejects: %v, expected the error of the trail", name, err)
		}
	}
	if after := f.state(); after != before {
		t.Errorf("rejected writes changed something:\n%s\nbefore:\n%s", after, before)
	}
}

func TestActorTestsCoverEveryWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tried := f.writes()
	s := reflect.TypeFor[*store.Store]()
	for m := range s.Methods() {
		takesActor := m.Type.NumIn() > 2 && m.Type.In(2) == reflect.TypeFor[store.Actor]()
		if _, ok := tried[m.Name]; ok != takesActor {
			t.Errorf("%s takes an actor as its second parameter: %t; tested without one: %t", m.Name, takesActor, ok)
		}
	}
}

// Only transactions of an actor can write, and only they run SQL that changes audited tables.
func TestSQLThatChangesTheCatalogNeedsAnActor(t *testing.T) {
	t.Parallel()
	changes := regexp.MustCompile(`(?i)\b(?:insert\s+into|update|delete\s+from)\s+(?:organizations|app_configs|domains|api_keys|links)\b`)
	sources, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	fileSet := token.NewFileSet()
	for _, source := range sources {
		if name := source.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fileSet, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	isChange := func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		return ok && literal.Kind == token.STRING && changes.MatchString(literal.Value)
	}
	named := make(map[string]bool) // constants and variables with such SQL
	for _, file := range files {
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok && contains(value, isChange) {
					for _, name := range value.Names {
						named[name.Name] = true
					}
				}
			}
		}
	}
	found := 0
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !contains(function, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				return isChange(n) || ok && named[name.Name]
			}) {
				continue
			}
			found++
			if !contains(function.Type.Params, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				return ok && (name.Name == "Actor" || name.Name == "transaction")
			}) {
				t.Errorf("%s: %s changes the catalog and takes neither an Actor nor a transaction of one", fileSet.Position(function.Pos()), function.Name.Name)
			}
		}
	}
	if len(named) == 0 || found == 0 {
		t.Errorf("found %d statements that change the catalog and %d functions that use them, expected some", len(named), found)
	}
	var made []string
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && contains(function, func(n ast.Node) bool {
				literal, ok := n.(*ast.CompositeLit)
				return ok && fmt.Sprint(literal.Type) == "transaction"
			}) {
				made = append(made, function.Name.Name)
			}
		}
	}
	if fmt.Sprint(made) != "[transact]" {
		t.Errorf("transactions that write begin in %v, expected only in transact, which takes an Actor", made)
	}
}

// contains reports whether some node under root satisfies is.
func contains(root ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		found = found || n != nil && is(n)
		return !found
	})
	return found
}
