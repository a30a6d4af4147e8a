package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// confirmations has n browsers confirm the same sign-in link at the same time, over two controls, after previews of it.
type confirmations struct{ n int }

func (d confirmations) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	for range 2 {
		if _, err := addControl(ctx, f, "TRUSTED_PROXIES=127.0.0.1/32", "CONSOLE_URL="+consoleURL); err != nil {
			return nil, err
		}
	}
	o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	printed, err := f.OperatorCommand(ctx, "console-link", "--org", o.OrgKey, "--role", "owner", "--console-url", consoleURL)
	if err != nil {
		return nil, err
	}
	var link struct{ URL string }
	if err := json.Unmarshal(printed, &link); err != nil {
		return nil, err
	}
	address, err := url.Parse(link.URL)
	if err != nil {
		return nil, err
	}
	body := func(confirm bool) string { return fmt.Sprintf(`{"token":%q,"confirm":%v}`, address.Fragment, confirm) }
	previews, spent := 0, 0
	for _, control := range f.Controls {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			path, text := address.Path+"?moved=1", ""
			if method == "POST" {
				path, text = address.Path, body(false)
			}
			a, err := send(ctx, control, method, path, text)
			if err != nil {
				return nil, err
			}
			previews++
			if a.status != http.StatusOK || a.cookie(sessionCookie) != "" {
				spent++
			}
		}
	}
	answers, errs := make([]answer, d.n), make([]error, d.n)
	var browsers sync.WaitGroup
	for i := range answers {
		browsers.Go(func() { answers[i], errs[i] = send(ctx, f.Controls[i%2], "POST", address.Path, body(true)) })
	}
	browsers.Wait()
	signedIn, refused := 0, 0
	for i, a := range answers {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case a.status == http.StatusOK && a.cookie(sessionCookie) != "":
			signedIn++
		case a.status == http.StatusUnauthorized && a.code == "LINK_INVALID":
			refused++
		}
	}
	conn, err := pgx.Connect(ctx, f.Control)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sessions int
	if err := conn.QueryRow(ctx, `select count(*) from console_sessions`).Scan(&sessions); err != nil {
		return nil, err
	}
	return []figures.Finding{
		figures.None("previews (GET, HEAD, POST without confirm) that spent the link or set a cookie", spent, previews),
		figures.Counted(fmt.Sprintf("browsers that were signed in by %d concurrent confirmations of one link over two controls", d.n), fmt.Sprint(signedIn), "1", signedIn == 1),
		figures.Counted("confirmations that got 401 LINK_INVALID", fmt.Sprint(refused), fmt.Sprint(d.n-1), refused == d.n-1),
		figures.Counted("sessions in Postgres", fmt.Sprint(sessions), "1", sessions == 1),
	}, nil
}
