package main

import (
	"errors"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"deeplink/shared/settings"
)

// command is the command line of control (decisions.md 10). Every setting is a flag and an environment variable; the flag
// wins.
type command struct {
	DatabaseURL settings.Database `required:"" env:"DATABASE_URL" placeholder:"$$DATABASE_URL" help:"PostgreSQL to use, as a URL."`
	settings.Log

	Serve   serveCommand   `cmd:"" default:"withargs" help:"Serve the API. This is the default."`
	Migrate migrateCommand `cmd:"" help:"Bring the database up to date."`
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
}

// spread are the settings of the commands that change what edges serve.
type spread struct {
	RedisURL    settings.Redis    `required:"" env:"REDIS_URL" placeholder:"$$REDIS_URL" help:"Redis that carries hints and counts requests, as a URL."`
	LinkBaseURL settings.LinkBase `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
}

// serveCommand are the settings of control serve.
type serveCommand struct {
	spread
	Addr           settings.Address     `name:"control-addr" env:"CONTROL_ADDR" default:":8081" help:"Where the API listens."`
	AdminAddr      settings.Address     `name:"control-admin-addr" env:"CONTROL_ADMIN_ADDR" default:"127.0.0.1:9081" help:"Where health, metrics and profiles are. Not for the public."`
	TrustedProxies settings.Proxies     `env:"TRUSTED_PROXIES" help:"Networks whose X-Forwarded-For is believed, as CIDRs with commas between."`
	Connections    settings.Connections `name:"control-database-connections" env:"CONTROL_DATABASE_CONNECTIONS" default:"16" help:"How many connections to PostgreSQL answer requests; 3 more do the rest."`
	Drain          time.Duration        `name:"control-drain" env:"CONTROL_DRAIN" default:"1s" help:"How long to go on after readiness was given up, so that balancers notice."`
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
	return c.spread.Validate()
}
