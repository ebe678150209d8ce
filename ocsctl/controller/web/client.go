package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"lightpath/internal/decode"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/internal/mtls"
)

// Client reads the data of a controller's page. Safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
}

var _ controller.History = (*Client)(nil)

// Dial returns a client of the page at http://host:port or https://host:port. It does not connect. Only https uses the
// files of keys and certificates, as [mtls.Client] does.
func Dial(page, ca, cert, key string) (*Client, error) {
	base, err := url.Parse(page)
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("web: %q is not http://host:port or https://host:port", base.Redacted())
	}
	transport := &http.Transport{TLSHandshakeTimeout: requestTimeout, ForceAttemptHTTP2: true}
	if base.Scheme == "https" {
		if transport.TLSClientConfig, err = mtls.Client(ca, cert, key); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
	}
	return &Client{base, &http.Client{Transport: transport}}, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Status returns the state of the controller.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.get(ctx, "api/status", nil, &s)
	return s, err
}

// History implements [controller.History]. An answer has at most [MaxEvents].
func (c *Client) History(ctx context.Context, q controller.Query) ([]controller.Event, error) {
	v := url.Values{"limit": {strconv.Itoa(MaxEvents)}, "before": {strconv.FormatUint(q.Before, 10)}}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(min(q.Limit, MaxEvents)))
	}
	if q.Plane != controller.AnyPlane {
		v.Set("plane", strconv.Itoa(q.Plane))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	for _, p := range q.Ports {
		v.Add("port", strconv.Itoa(p))
	}
	for _, k := range q.Kinds {
		v.Add("kind", string(k))
	}
	var page HistoryPage
	if err := c.get(ctx, "api/history", v, &page); err != nil {
		return nil, err
	}
	events := make([]controller.Event, len(page.Events))
	for i := range page.Events {
		events[i] = page.Events[i].Event
	}
	return events, nil
}

// maxAnswer bounds the answer to one request: a full page of events of large planes.
const maxAnswer = 256 << 20

// get reads the JSON at a path below the page.
func (c *Client) get(ctx context.Context, path string, query url.Values, v any) error {
	at := c.base.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("web: %s: %w", at, err)
	}
	if answer.StatusCode != http.StatusOK {
		var said problem
		if json.Unmarshal(body, &said) != nil || said.Error == "" {
			said.Error = string(body)
		}
		return fmt.Errorf("web: %s: %s: %.200q", at, answer.Status, strings.TrimSpace(said.Error))
	}
	if err := decode.JSON(body, v); err != nil {
		return fmt.Errorf("web: %s: %w", at, err)
	}
	return nil
}
