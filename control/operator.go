package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/bus"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
	"deeplink/shared/settings"
	"deeplink/shared/strictjson"
)

// errArgument is wrapped by what is wrong with a command's arguments and files.
var errArgument = errors.New("bad argument")

// commandTimeout bounds an operator's command.
const commandTimeout = 30 * time.Second

// none clears a plan or an app config; demo is an app config to try things out with.
const (
	none = "none"
	demo = "demo"
)

// print writes the result of a command as one JSON value.
func (t *task) print(result any) error {
	encoder := json.NewEncoder(t.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

// read runs f with a store.
func (t *task) read(linkBase settings.LinkBase, f func(context.Context, *store.Store) error) error {
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	return f(ctx, operatorStore(pool, linkBase))
}

// operatorStore returns a store in the name of who runs the command.
func operatorStore(pool *pgxpool.Pool, linkBase settings.LinkBase) *store.Store {
	return store.New(pool, string(linkBase)).By(store.Actor{Type: store.ActorOperator, ID: login()})
}

// login returns who runs the command: the name of the user, or the number where it has none, as in many a container.
func login() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return current.Username
	}
	return strconv.Itoa(os.Getuid())
}

// change runs f, which commits a change that it returns, and then waits until the edges know it.
func (t *task) change(with spread, f func(context.Context, *store.Store) (feed.Change, error)) (relay.Propagation, error) {
	pool, err := openPool(t.database, relayConnections)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	client, err := bus.Open(string(with.RedisURL))
	if err != nil {
		return "", err
	}
	defer client.Close()

	r := relay.New(pool, client, t.log)
	duty, end := context.WithCancel(t.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(duty) }()
	var propagation relay.Propagation
	err = t.read(with.LinkBaseURL, func(ctx context.Context, s *store.Store) error {
		change, err := f(ctx, s)
		if err != nil {
			return err
		}
		propagation = r.Await(ctx, change)
		return nil
	})
	end()
	return propagation, errors.Join(err, <-ended)
}

// organization returns the organization with the key, in any case.
func organization(ctx context.Context, s *store.Store, key string) (catalog.Organization, error) {
	o, err := s.Organization(ctx, strings.ToLower(key))
	return o, named(key, err)
}

// named says which organization is not there.
func named(key string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("organization %q: %w", key, err)
	}
	return err
}

type migrateCommand struct{}

type migrated struct {
	Applied []int64 `json:"applied"`
}

type orgCreateCommand struct {
	spread
	Name       string  `required:"" help:"Name, 1 to 255 characters."`
	OrgKey     string  `help:"Key in short URLs: 4 of a-z and 0-9. Generated when it is not given."`
	ExternalID *string `help:"Id under which the identity provider knows it."`
	Plan       *string `help:"Plan: free, starter, growth, scale or enterprise."`
	AppConfig  string  `help:"File with an app config as JSON, or demo."`
}

// Run implements control org create.
func (c *orgCreateCommand) Run(t *task) error {
	wanted := store.NewOrganization{Name: c.Name, OrgKey: strings.ToLower(c.OrgKey), ExternalID: c.ExternalID}
	if err := checkText("--name", c.Name); err != nil {
		return err
	}
	if c.OrgKey != "" && !catalog.ValidOrgKey(wanted.OrgKey) {
		return fmt.Errorf("%w: --org-key must be 4 of a-z and 0-9, and not data or docs", errArgument)
	}
	if c.ExternalID != nil {
		if err := checkText("--external-id", *c.ExternalID); err != nil {
			return err
		}
	}
	if c.Plan != nil {
		plan, err := parsePlan(*c.Plan)
		if err != nil {
			return err
		}
		wanted.Plan = plan
	}
	if c.AppConfig != "" {
		config, err := readAppConfig(c.AppConfig)
		if err != nil {
			return err
		}
		wanted.AppConfig = &config
	}
	var created store.CreatedOrganization
	propagation, err := t.change(c.spread, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		created, change, err = s.CreateOrganization(ctx, wanted)
		return change, err
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		store.CreatedOrganization
		Propagation relay.Propagation `json:"propagation"`
	}{created, propagation})
}

// checkText checks a name or an external id.
func checkText(flag, s string) error {
	if n := utf8.RuneCountInString(s); n < 1 || n > 255 || !utf8.ValidString(s) || strings.TrimSpace(s) == "" || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%w: %s must be 1 to 255 characters", errArgument, flag)
	}
	return nil
}

// parsePlan returns nil for none.
func parsePlan(s string) (*catalog.Plan, error) {
	if s == none {
		return nil, nil
	}
	plan, ok := catalog.ParsePlan(s)
	if !ok {
		return nil, fmt.Errorf("%w: there is no plan %q", errArgument, s)
	}
	return &plan, nil
}

// demoAppConfig opens an app that does not exist; its fallback is a page that does.
const demoAppConfig = `{
	"ios": {"bundleId": "com.example.deeplink", "teamId": "ABCDE12345", "appStoreId": "123456789", "scheme": "deeplinkdemo"},
	"android": {"packageName": "com.example.deeplink", "scheme": "deeplinkdemo", "sha256CertFingerprints":
		["14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"]},
	"fallbackUrl": "https://example.com/"
}`

// readAppConfig reads an app config from a file, or the demo one. None is the zero one.
func readAppConfig(file string) (catalog.AppConfig, error) {
	body := []byte(demoAppConfig)
	switch file {
	case none:
		return catalog.AppConfig{}, nil
	case demo:
	default:
		var err error
		if body, err = readFile(file); err != nil {
			return catalog.AppConfig{}, fmt.Errorf("%w: %w", errArgument, err)
		}
	}
	err := strictjson.Check(body, maxDepth)
	if err != nil {
		return catalog.AppConfig{}, fmt.Errorf("%w: %s: %w", errArgument, file, err)
	}
	config, err := catalog.ReadAppConfig(body)
	if err != nil {
		return catalog.AppConfig{}, fmt.Errorf("%w: %s: %w", errArgument, file, err)
	}
	return config, nil
}

// readFile reads a file of at most maxBody bytes.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("%s: more than %d bytes", name, maxBody)
	}
	return body, err
}

type orgListCommand struct{}

// Run implements control org list.
func (*orgListCommand) Run(t *task) error {
	return t.read("", func(ctx context.Context, s *store.Store) error {
		all, err := s.Organizations(ctx)
		if err != nil {
			return err
		}
		return t.print(all)
	})
}

type orgSuspendCommand struct {
	spread
	Key string `arg:"" help:"Key of the organization."`
}

// Run implements control org suspend.
func (c *orgSuspendCommand) Run(t *task) error { return setSuspended(t, c.spread, c.Key, true) }

type orgResumeCommand struct {
	spread
	Key string `arg:"" help:"Key of the organization."`
}

// Run implements control org resume.
func (c *orgResumeCommand) Run(t *task) error { return setSuspended(t, c.spread, c.Key, false) }

func setSuspended(t *task, spread spread, key string, suspended bool) error {
	var o catalog.Organization
	propagation, err := t.change(spread, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		o, change, err = s.SetSuspended(ctx, strings.ToLower(key), suspended)
		return change, named(key, err)
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		catalog.Organization
		Propagation relay.Propagation `json:"propagation"`
	}{o, propagation})
}

type orgPlanCommand struct {
	Key  string `arg:"" help:"Key of the organization."`
	Plan string `arg:"" help:"Plan, or none."`
}

// Run implements control org plan.
func (c *orgPlanCommand) Run(t *task) error {
	plan, err := parsePlan(c.Plan)
	if err != nil {
		return err
	}
	return t.read("", func(ctx context.Context, s *store.Store) error {
		o, err := s.SetPlan(ctx, strings.ToLower(c.Key), plan)
		if err != nil {
			return named(c.Key, err)
		}
		return t.print(o)
	})
}

type orgAppConfigCommand struct {
	spread
	Key  string `arg:"" help:"Key of the organization."`
	File string `arg:"" help:"File with an app config as JSON, demo, or none."`
}

// Run implements control org app-config.
func (c *orgAppConfigCommand) Run(t *task) error {
	config, err := readAppConfig(c.File)
	if err != nil {
		return err
	}
	propagation, err := t.change(c.spread, func(ctx context.Context, s *store.Store) (feed.Change, error) {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return feed.Change{}, err
		}
		return s.SetAppConfig(ctx, o.ID, config)
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		catalog.AppConfig
		Propagation relay.Propagation `json:"propagation"`
	}{config, propagation})
}

type keyRegenerateCommand struct {
	Key  string `arg:"" help:"Key of the organization."`
	Tier string `arg:"" help:"SERVER or CLIENT."`
}

// Run implements control key regenerate.
func (c *keyRegenerateCommand) Run(t *task) error {
	tier, ok := apikey.ParseTier(c.Tier)
	if !ok {
		return fmt.Errorf("%w: the tier must be SERVER or CLIENT", errArgument)
	}
	return t.read("", func(ctx context.Context, s *store.Store) error {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return err
		}
		key, err := s.ReplaceKey(ctx, o.ID, tier, 0)
		if err != nil {
			return err
		}
		return t.print(key)
	})
}

type domainAddCommand struct {
	spread
	Key      string `arg:"" help:"Key of the organization."`
	Host     string `arg:"" help:"Host name."`
	Verified bool   `help:"Let it resolve without looking at DNS."`
}

// Run implements control domain add.
func (c *domainAddCommand) Run(t *task) error {
	host, err := readCustomHost(c.Host)
	if err != nil {
		return fmt.Errorf("%w: %w", errArgument, err)
	}
	var d catalog.Domain
	var token string
	propagation, err := t.change(c.spread, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return feed.Change{}, err
		}
		d, token, change, err = s.AddDomain(ctx, o.ID, host, c.Verified)
		return change, err
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		catalog.Domain
		Verification verification      `json:"verification"`
		Propagation  relay.Propagation `json:"propagation"`
	}{d, verificationOf(d.Host, token), propagation})
}
