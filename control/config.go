package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/api"
	"deeplink/control/internal/canary"
	"deeplink/control/internal/clicks"
	"deeplink/control/internal/jobs"
	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/shared/settings"
)

// command is the command line of control. Every setting is a flag and an environment variable; the flag wins.
type command struct {
	DatabaseURL settings.Database `required:"" env:"DATABASE_URL" placeholder:"$$DATABASE_URL" help:"PostgreSQL to use, as a URL."`
	settings.Log

	Serve   serveCommand   `cmd:"" default:"withargs" help:"Serve the API. This is the default."`
	Migrate migrateCommand `cmd:"" help:"Apply the migrations that the database lacks."`
	Doctor  doctorCommand  `cmd:"" help:"Check settings, Postgres, Redis and edges, and print what to do."`
	Org     struct {
		Create    orgCreateCommand    `cmd:"" help:"Create an organization, with API keys if its plan includes them."`
		List      orgListCommand      `cmd:"" help:"List all organizations."`
		Suspend   orgSuspendCommand   `cmd:"" help:"Suspend an organization: its API keys and links stop working."`
		Resume    orgResumeCommand    `cmd:"" help:"End a suspension."`
		Plan      orgPlanCommand      `cmd:"" help:"Set or remove the plan of an organization."`
		AppConfig orgAppConfigCommand `cmd:"" help:"Set or remove the app config of an organization."`
	} `cmd:"" help:"Organizations."`
	Key struct {
		Regenerate keyRegenerateCommand `cmd:"" help:"Replace an API key at once, and print the new one. It is never shown again."`
	} `cmd:"" help:"API keys."`
	Domain struct {
		Add    domainAddCommand    `cmd:"" help:"Add a custom domain to an organization."`
		Remove domainRemoveCommand `cmd:"" help:"Remove a custom domain from an organization. It must have no links."`
	} `cmd:"" help:"Custom domains."`
	ConsoleLink consoleLinkCommand `cmd:"" help:"Print a link that signs a person in to the console once."`
	Session     struct {
		List   sessionListCommand   `cmd:"" help:"List who is signed in to the console for an organization."`
		Revoke sessionRevokeCommand `cmd:"" help:"End sessions of the console at once."`
	} `cmd:"" help:"Sessions of the console."`
	Links struct {
		Export linksExportCommand `cmd:"" help:"Print the links of an organization, one per line, oldest first, as they are at one moment."`
		Import linksImportCommand `cmd:"" help:"Create links from a file: an export of control or of another service."`
	} `cmd:"" help:"Links in bulk."`
	Events struct {
		Export eventsExportCommand `cmd:"" help:"Print SDK events, one per line."`
	} `cmd:"" help:"Events of apps."`
	Clicks struct {
		Reclassify clicksReclassifyCommand `cmd:"" help:"Classify clicks again with the rules of this program."`
		Forget     clicksForgetCommand     `cmd:"" help:"Give up the clicks of a dead edge, so that figures become complete without them."`
		Export     clicksExportCommand     `cmd:"" help:"Print clicks, one per line."`
	} `cmd:"" help:"Clicks on links."`
	Device struct {
		Delete deviceDeleteCommand `cmd:"" help:"Erase a device or a user of an app, and unlink the events."`
	} `cmd:"" help:"Devices and users of apps."`
}

// propagationFlags are the settings of commands that change what edges serve.
type propagationFlags struct {
	RedisURL settings.Redis `required:"" env:"REDIS_URL" placeholder:"$$REDIS_URL" help:"Redis that carries hints and counts requests, as a URL."`
	sharedHost
}

// sharedHost are the settings that name the shared host. A custom domain cannot have one of these names.
type sharedHost struct {
	LinkBaseURL settings.LinkBase   `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"Start of short URLs on the shared host, such as https://go.example.com."`
	ExtraHosts  []settings.HostName `name:"edge-extra-hosts" env:"EDGE_EXTRA_HOSTS" help:"Other names of the shared host, separated by commas. Set the same list at the edges. These names cannot be custom domains."`
}

// store returns a store over pool that knows the names of the shared host.
func (h sharedHost) store(pool *pgxpool.Pool) *store.Store {
	extra := make([]string, len(h.ExtraHosts))
	for i, name := range h.ExtraHosts {
		extra[i] = string(name)
	}
	return store.New(pool, string(h.LinkBaseURL), extra...)
}

// portalSettings are the settings of the portal: identity provider, billing page and DNS server.
type portalSettings struct {
	KeysURL     string `name:"portal-jwks-url" env:"PORTAL_JWKS_URL" help:"URL of the JWKS of the identity provider. Without it the portal responds with 501."`
	Issuer      string `name:"portal-issuer" env:"PORTAL_ISSUER" help:"The issuer (iss) of session tokens. Required with PORTAL_JWKS_URL."`
	Audience    string `name:"portal-audience" env:"PORTAL_AUDIENCE" help:"Audience (aud) that session tokens must have. Without it any audience is accepted."`
	OrgClaim    string `name:"portal-org-claim" env:"PORTAL_ORG_CLAIM" default:"org_id" help:"Claim with the external id of the organization. A value that starts with / is a JSON Pointer (RFC 6901)."`
	RoleClaim   string `name:"portal-role-claim" env:"PORTAL_ROLE_CLAIM" default:"org_role" help:"Claim with the role: member, admin or owner, optionally prefixed by org:. A value that starts with / is a JSON Pointer, and may lead to a list."`
	OrgsClaim   string `name:"portal-orgs-claim" env:"PORTAL_ORGS_CLAIM" default:"organizations" help:"Claim that lists several organizations, for the console."`
	DNS         string `name:"portal-dns" env:"PORTAL_DNS" help:"DNS server for lookups of custom domains, as host:port. Default: the DNS server of the system."`
	CheckoutURL string `name:"billing-checkout-url" env:"BILLING_CHECKOUT_URL" help:"Page on which users pay for plans. Without it checkout responds with 501."`
	// SigningKey is a secret. It is a string because kong prints values that their type refuses.
	SigningKey string `name:"billing-signing-key" env:"BILLING_SIGNING_KEY" help:"64 hex digits: the key that signs checkout URLs. Required with BILLING_CHECKOUT_URL."`
}

// sessions returns the verifier of session tokens, or nil without an identity provider.
func (p *portalSettings) sessions(log *slog.Logger) (*session.Verifier, error) {
	if err := session.CheckClaims(p.OrgClaim, p.RoleClaim, p.OrgsClaim); err != nil {
		return nil, fmt.Errorf("--portal-org-claim ($PORTAL_ORG_CLAIM), --portal-role-claim ($PORTAL_ROLE_CLAIM) and --portal-orgs-claim ($PORTAL_ORGS_CLAIM): %w", err)
	}
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

// checkout returns the signer of checkout URLs, or nil without a billing page.
func (p *portalSettings) checkout() (*api.Checkout, error) {
	return api.NewCheckout(p.CheckoutURL, p.SigningKey)
}

// check returns an error for the first invalid setting.
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
	propagationFlags
	portalSettings
	consoleSettings
	Addr            settings.Address     `name:"control-addr" env:"CONTROL_ADDR" default:":8081" help:"Address of the API."`
	AdminAddr       settings.Address     `name:"control-admin-addr" env:"CONTROL_ADMIN_ADDR" default:"127.0.0.1:9081" help:"Address of readiness, metrics and profiles. Not for the public."`
	TrustedProxies  settings.Proxies     `env:"TRUSTED_PROXIES" help:"Networks of proxies whose X-Forwarded-For is trusted, as CIDRs separated by commas."`
	Connections     settings.Connections `name:"control-database-connections" env:"CONTROL_DATABASE_CONNECTIONS" default:"16" help:"PostgreSQL connections for the API and the portal. Half of them may write at the same time, 2 of these for one organization. With fewer than 4, one organization can delay others. Control uses 6 more for its background work."`
	SDKConnections  settings.Connections `name:"control-sdk-database-connections" env:"CONTROL_SDK_DATABASE_CONNECTIONS" default:"4" help:"PostgreSQL connections for the SDK routes, 3 to 1000. One organization gets at most half of them."`
	SDKOrigins      []settings.Origin    `name:"control-sdk-origins" env:"CONTROL_SDK_ORIGINS" help:"Origins whose pages may call the SDK routes from a browser, separated by commas, such as https://shop.example.com. Default: none."`
	Drain           time.Duration        `name:"control-drain" env:"CONTROL_DRAIN" default:"1s" help:"How long to keep serving after /readyz fails, so load balancers can drain."`
	Retention       time.Duration        `name:"events-retention" env:"EVENTS_RETENTION" default:"9600h" help:"How long to keep SDK events; control deletes them in whole days."`
	DeviceRetention time.Duration        `name:"devices-retention" env:"DEVICES_RETENTION" default:"9600h" help:"How long to keep unused devices, and users without a device, with their traits."`
	clickRetention
	Canary    time.Duration `name:"control-canary" env:"CONTROL_CANARY" default:"10s" help:"How often the canary creates, edits and deletes a link and checks that every edge serves each change. 0s: never."`
	Collector string        `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"OTLP collector that gets traces of requests, over HTTP. Without it tracing is off."`
}

// clickRetention is the setting of how long clicks are kept one by one.
type clickRetention struct {
	ClickRetention time.Duration `name:"clicks-retention" env:"CLICKS_RETENTION" default:"720h" help:"How long to keep each click after the end of its day, in whole days. Counts stay. 0s: clicks are only counted."`
}

// check returns an error for a retention that is not a number of whole days in its bounds.
func (r clickRetention) check() error {
	if r.ClickRetention < clicks.MinRetention || r.ClickRetention > clicks.MaxRetention || r.ClickRetention%(24*time.Hour) != 0 {
		return fmt.Errorf("--clicks-retention ($CLICKS_RETENTION) must be from %v to %v, in whole days such as 720h", clicks.MinRetention, clicks.MaxRetention)
	}
	return nil
}

// parseCommand reads the command line and the environment. The error names the invalid setting and the reason. For --help it prints to stdout
// and calls exit.
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

// Validate implements kong's check for every command that embeds it.
func (s *propagationFlags) Validate() error { return s.RedisURL.Check() }

// Validate implements kong's check of a command.
func (c *serveCommand) Validate() error {
	if err := c.Connections.Check("control-database-connections", "CONTROL_DATABASE_CONNECTIONS"); err != nil {
		return err
	}
	if err := c.SDKConnections.Check("control-sdk-database-connections", "CONTROL_SDK_DATABASE_CONNECTIONS"); err != nil || c.SDKConnections < minSDKConnections {
		return fmt.Errorf("--control-sdk-database-connections ($CONTROL_SDK_DATABASE_CONNECTIONS) must be from %d to 1000", minSDKConnections)
	}
	if c.Drain < 0 || c.Drain > time.Minute {
		return errors.New("--control-drain ($CONTROL_DRAIN) must be from 0s to 1m")
	}
	if c.Retention < jobs.MinRetention || c.Retention > jobs.MaxRetention {
		return fmt.Errorf("--events-retention ($EVENTS_RETENTION) must be from %v to %v", jobs.MinRetention, jobs.MaxRetention)
	}
	if c.DeviceRetention < jobs.MinRetention || c.DeviceRetention > jobs.MaxRetention {
		return fmt.Errorf("--devices-retention ($DEVICES_RETENTION) must be from %v to %v", jobs.MinRetention, jobs.MaxRetention)
	}
	if err := c.clickRetention.check(); err != nil {
		return err
	}
	if c.Canary != 0 && (c.Canary < canary.MinInterval || c.Canary > canary.MaxInterval) {
		return fmt.Errorf("--control-canary ($CONTROL_CANARY) must be from %v to %v, or 0s", canary.MinInterval, canary.MaxInterval)
	}
	if err := checkEndpoint(c.Collector); err != nil {
		return err
	}
	if err := c.portalSettings.check(); err != nil {
		return err
	}
	if _, err := c.consoleSettings.service(&c.portalSettings, nil, nil, nil); err != nil {
		return err
	}
	return c.propagationFlags.Validate()
}
