package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"deeplink/control/internal/session"
	"deeplink/shared/settings"
)

// command is the command line of control (decisions.md 10). Every setting is a flag and an environment variable; the flag
// wins.
type command struct {
	DatabaseURL settings.Database `required:"" env:"DATABASE_URL" placeholder:"$$DATABASE_URL" help:"PostgreSQL to use, as a URL."`
	settings.Log

	Serve   serveCommand   `cmd:"" default:"withargs" help:"Serve the API. This is the default."`
	Migrate migrateCommand `cmd:"" help:"Bring the database up to date."`
	Doctor  doctorCommand  `cmd:"" help:"Examine settings, Postgres, Redis and edges, and say what to do."`
	Org     struct {
		Create    orgCreateCommand    `cmd:"" help:"Make an organization, with keys when its plan has them."`
		List      orgListCommand      `cmd:"" help:"List all organizations."`
		Suspend   orgSuspendCommand   `cmd:"" help:"Suspend an organization: no key works and no link resolves."`
		Resume    orgResumeCommand    `cmd:"" help:"End a suspension."`
		Plan      orgPlanCommand      `cmd:"" help:"Set an organization's plan, or none."`
		AppConfig orgAppConfigCommand `cmd:"" help:"Set an organization's app config, or none."`
	} `cmd:"" help:"Organizations."`
	Key struct {
		Regenerate keyRegenerateCommand `cmd:"" help:"Replace an API key at once. Prints the new one: it is shown nowhere else."`
	} `cmd:"" help:"API keys."`
	Domain struct {
		Add domainAddCommand `cmd:"" help:"Add a custom domain to an organization."`
	} `cmd:"" help:"Custom domains."`
	Links struct {
		Export linksExportCommand `cmd:"" help:"Print an organization's links, one a line: all of one moment, the oldest first."`
		Import linksImportCommand `cmd:"" help:"Make links of a file: an export, or that of another service."`
	} `cmd:"" help:"Links in bulk."`
	Events struct {
		Export eventsExportCommand `cmd:"" help:"Print what phones reported, one event a line."`
	} `cmd:"" help:"Events of apps."`
}

// spread are the settings of the commands that change what edges serve.
type spread struct {
	RedisURL    settings.Redis    `required:"" env:"REDIS_URL" placeholder:"$$REDIS_URL" help:"Redis that carries hints and counts requests, as a URL."`
	LinkBaseURL settings.LinkBase `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
}

// portalSettings say whose session tokens the portal believes, where plans are paid for, and who is asked about domains.
type portalSettings struct {
	KeysURL     string `name:"portal-jwks-url" env:"PORTAL_JWKS_URL" help:"Where the identity provider publishes its keys. Without it the portal answers 501."`
	Issuer      string `name:"portal-issuer" env:"PORTAL_ISSUER" help:"The issuer (iss) of session tokens. Required with PORTAL_JWKS_URL."`
	Audience    string `name:"portal-audience" env:"PORTAL_AUDIENCE" help:"What session tokens must be for (aud). Not looked at when it is not set."`
	OrgClaim    string `name:"portal-org-claim" env:"PORTAL_ORG_CLAIM" default:"org_id" help:"Claim with the id under which the identity provider knows the organization."`
	RoleClaim   string `name:"portal-role-claim" env:"PORTAL_ROLE_CLAIM" default:"org_role" help:"Claim with the role: member, admin or owner, also with org: before it."`
	DNS         string `name:"portal-dns" env:"PORTAL_DNS" help:"DNS server that is asked about custom domains, as host:port. The system's when it is not set."`
	CheckoutURL string `name:"billing-checkout-url" env:"BILLING_CHECKOUT_URL" help:"Page where plans are paid for. Without it there is no checkout (501)."`
	// SigningKey is a secret: kong would repeat it if it were of a type that can refuse it.
	SigningKey string `name:"billing-signing-key" env:"BILLING_SIGNING_KEY" help:"64 hex digits with which the addresses of checkouts are signed. Required with BILLING_CHECKOUT_URL."`
}

// sessions returns who verifies session tokens, or nil when no identity provider is set up.
func (p *portalSettings) sessions(log *slog.Logger) (*session.Verifier, error) {
	if p.KeysURL == "" {
		return nil, nil
	}
	verifier, err := session.New(session.Options{
		KeysURL: p.KeysURL, Issuer: p.Issuer, Audience: p.Audience, OrganizationClaim: p.OrgClaim, RoleClaim: p.RoleClaim, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--portal-jwks-url ($PORTAL_JWKS_URL) and --portal-issuer ($PORTAL_ISSUER): %w", err)
	}
	return verifier, nil
}

// checkout returns who makes the addresses of checkouts, or nil when there is no billing page.
func (p *portalSettings) checkout() (*checkout, error) {
	return newCheckout(p.CheckoutURL, p.SigningKey)
}

// check returns what is wrong with the settings.
func (p *portalSettings) check() error {
	if _, err := p.sessions(nil); err != nil {
		return err
	}
	if _, err := p.checkout(); err != nil {
		return err
	}
	if p.DNS == "" {
		return nil
	}
	var server settings.Address
	if err := server.UnmarshalText([]byte(p.DNS)); err != nil || strings.HasPrefix(p.DNS, ":") {
		return errors.New("--portal-dns ($PORTAL_DNS) must be host:port")
	}
	return nil
}

// serveCommand are the settings of control serve.
type serveCommand struct {
	spread
	portalSettings
	consoleSettings
	Addr           settings.Address     `name:"control-addr" env:"CONTROL_ADDR" default:":8081" help:"Where the API listens."`
	AdminAddr      settings.Address     `name:"control-admin-addr" env:"CONTROL_ADMIN_ADDR" default:"127.0.0.1:9081" help:"Where health, metrics and profiles are. Not for the public."`
	TrustedProxies settings.Proxies     `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For is believed, as CIDRs with commas between."`
	Connections    settings.Connections `name:"control-database-connections" env:"CONTROL_DATABASE_CONNECTIONS" default:"16" help:"How many connections to PostgreSQL answer requests of the API and the portal; 4 more answer phones, and 6 do the rest."`
	Drain          time.Duration        `name:"control-drain" env:"CONTROL_DRAIN" default:"1s" help:"How long to go on after readiness was given up, so that balancers notice."`
	ExtraHosts     []string             `name:"edge-extra-hosts" env:"EDGE_EXTRA_HOSTS" help:"More names of the shared host, as the edges have them, with commas between."`
	Retention      time.Duration        `name:"events-retention" env:"EVENTS_RETENTION" default:"9600h" help:"How long what phones report is kept. It goes by whole days."`
	Canary         time.Duration        `name:"control-canary" env:"CONTROL_CANARY" default:"10s" help:"How often to make a link, edit and delete it and see for each that every edge shows it. 0s: never."`
	Collector      string               `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"OTLP collector that traces of requests are sent to, over HTTP. Without it there are none."`
}

// parseCommand reads the command line and the environment. The error says which setting is bad and why. Help goes to stdout, after
// which exit is called.
func parseCommand(args []string, stdout, stderr io.Writer, exit func(int)) (*command, *kong.Context, error) {
	c := new(command)
	parser, err := kong.New(c,
		kong.Name("control"),
		kong.Description("The API that edits deep links, and the commands of its operators."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
	)
	if err != nil {
		return nil, nil, err
	}
	selected, err := parser.Parse(args)
	return c, selected, err
}

// Validate implements kong's check of a command line.
func (c *command) Validate() error { return c.DatabaseURL.Check() }

// Validate implements kong's check of a command, for all that embed it.
func (s *spread) Validate() error { return s.RedisURL.Check() }

// Validate implements kong's check of a command.
func (c *serveCommand) Validate() error {
	if err := c.Connections.Check("control-database-connections", "CONTROL_DATABASE_CONNECTIONS"); err != nil {
		return err
	}
	if c.Drain < 0 || c.Drain > time.Minute {
		return errors.New("--control-drain ($CONTROL_DRAIN) must be from 0s to 1m")
	}
	if c.Retention < minRetention || c.Retention > maxRetention {
		return fmt.Errorf("--events-retention ($EVENTS_RETENTION) must be from %v to %v", minRetention, maxRetention)
	}
	if c.Canary != 0 && (c.Canary < minCanary || c.Canary > maxCanary) {
		return fmt.Errorf("--control-canary ($CONTROL_CANARY) must be from %v to %v, or 0s", minCanary, maxCanary)
	}
	if err := checkEndpoint(c.Collector); err != nil {
		return err
	}
	if err := c.portalSettings.check(); err != nil {
		return err
	}
	if _, err := c.consoleSettings.origin(); err != nil {
		return err
	}
	return c.spread.Validate()
}
