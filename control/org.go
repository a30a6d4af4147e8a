package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// none removes a plan or an app config. demo is an app config for trying things out.
const (
	none = "none"
	demo = "demo"
)

type orgCreateCommand struct {
	propagationFlags
	Name       string  `required:"" help:"Name, 1 to 255 characters."`
	OrgKey     string  `help:"Key in short URLs: 4 characters of a-z and 0-9. Default: generated."`
	ExternalID *string `help:"Id of the organization at the identity provider."`
	Plan       *string `help:"Plan: free, starter, growth, scale or enterprise."`
	AppConfig  string  `help:"File with an app config as JSON, or demo."`
}

// Run implements control org create.
func (c *orgCreateCommand) Run(t *env) error {
	wanted := store.NewOrganization{Name: c.Name, OrgKey: strings.ToLower(c.OrgKey), ExternalID: c.ExternalID}
	if err := checkText("--name", c.Name); err != nil {
		return err
	}
	if c.OrgKey != "" && !catalog.ValidOrgKey(wanted.OrgKey) {
		return fmt.Errorf("%w: --org-key must be 4 characters of a-z and 0-9, and not data or docs", errArgument)
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
	propagation, err := t.change(c.propagationFlags, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		created, change, err = s.CreateOrganization(ctx, operatorActor(), wanted)
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

// parsePlan parses a plan. It returns nil for none.
func parsePlan(s string) (*catalog.Plan, error) {
	if s == none {
		return nil, nil
	}
	plan, ok := catalog.ParsePlan(s)
	if !ok {
		return nil, fmt.Errorf("%w: unknown plan %q; use free, starter, growth, scale, enterprise or none", errArgument, s)
	}
	return &plan, nil
}

// demoAppConfig names an app that does not exist, and a fallback page that exists.
const demoAppConfig = `{
	"ios": {"bundleId": "com.example.deeplink", "teamId": "ABCDE12345", "appStoreId": "123456789", "scheme": "deeplinkdemo"},
	"android": {"packageName": "com.example.deeplink", "scheme": "deeplinkdemo", "sha256CertFingerprints":
		["14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"]},
	"fallbackUrl": "https://example.com/"
}`

// readAppConfig reads an app config from a file. demo returns the demo config, and none an empty one.
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
	err := decode.CheckJSON(body)
	if err != nil {
		return catalog.AppConfig{}, fmt.Errorf("%w: %s: %w", errArgument, file, err)
	}
	config, err := catalog.ReadAppConfig(body)
	if err != nil {
		return catalog.AppConfig{}, fmt.Errorf("%w: %s: %w", errArgument, file, err)
	}
	return config, nil
}

// readFile reads a file of at most MaxBody bytes.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, decode.MaxBody+1))
	if err == nil && len(body) > decode.MaxBody {
		err = fmt.Errorf("%s: more than %d bytes", name, decode.MaxBody)
	}
	return body, err
}

type orgListCommand struct{}

// Run implements control org list.
func (*orgListCommand) Run(t *env) error {
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		all, err := s.Organizations(ctx)
		if err != nil {
			return err
		}
		return t.print(all)
	})
}

type orgSuspendCommand struct {
	propagationFlags
	Key string `arg:"" help:"Key of the organization."`
}

// Run implements control org suspend.
func (c *orgSuspendCommand) Run(t *env) error {
	return setSuspended(t, c.propagationFlags, c.Key, true)
}

type orgResumeCommand struct {
	propagationFlags
	Key string `arg:"" help:"Key of the organization."`
}

// Run implements control org resume.
func (c *orgResumeCommand) Run(t *env) error {
	return setSuspended(t, c.propagationFlags, c.Key, false)
}

func setSuspended(t *env, propagationFlags propagationFlags, key string, suspended bool) error {
	var o catalog.Organization
	propagation, err := t.change(propagationFlags, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		o, change, err = s.SetSuspended(ctx, operatorActor(), strings.ToLower(key), suspended)
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
func (c *orgPlanCommand) Run(t *env) error {
	plan, err := parsePlan(c.Plan)
	if err != nil {
		return err
	}
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		o, err := s.SetPlan(ctx, operatorActor(), strings.ToLower(c.Key), plan)
		if err != nil {
			return named(c.Key, err)
		}
		return t.print(o)
	})
}

type orgAppConfigCommand struct {
	propagationFlags
	Key  string `arg:"" help:"Key of the organization."`
	File string `arg:"" help:"File with an app config as JSON, demo, or none."`
}

// Run implements control org app-config.
func (c *orgAppConfigCommand) Run(t *env) error {
	config, err := readAppConfig(c.File)
	if err != nil {
		return err
	}
	propagation, err := t.change(c.propagationFlags, func(ctx context.Context, s *store.Store) (feed.Change, error) {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return feed.Change{}, err
		}
		return s.SetAppConfig(ctx, operatorActor(), o.ID, store.Unconditional, config)
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		catalog.AppConfig
		Propagation relay.Propagation `json:"propagation"`
	}{config, propagation})
}
