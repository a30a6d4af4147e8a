-- +goose Up
-- Descriptions for every table, column and function that had none, and plainer ones for the oldest.
comment on table organizations is 'A tenant. It owns links, domains, API keys and one app config.';
comment on column organizations.id is 'UUIDv7.';
comment on column organizations.org_key is 'First path segment of its short URLs on the shared host, four letters or digits. It never changes: edges identify the organization by it.';
comment on column organizations.name is 'Name for people.';
comment on column organizations.external_id is 'Id of the organization at the identity provider.';
comment on column organizations.plan is 'Null: no plan is selected yet.';
comment on column organizations.suspended is 'While true, management routes respond with 401 and short URLs with 410.';
comment on column organizations.created_at is 'When the organization was created.';

comment on table app_configs is 'How the apps of an organization are opened, and where a click goes when there is no app.';
comment on column app_configs.organization_id is 'The organization; it has at most one app config.';
comment on column app_configs.ios_bundle_id is 'Bundle identifier of the iOS app. Null: no iOS app, as for the other ios_ columns.';
comment on column app_configs.ios_team_id is 'Apple team identifier, for the association file.';
comment on column app_configs.ios_app_store_id is 'Number of the app in the App Store.';
comment on column app_configs.ios_scheme is 'Custom URL scheme that opens the iOS app.';
comment on column app_configs.android_package_name is 'Package name of the Android app. Null: no Android app, as for the other android_ columns.';
comment on column app_configs.android_sha256_cert_fingerprints is 'Fingerprints of the signing certificates, for assetlinks.json.';
comment on column app_configs.android_scheme is 'Custom URL scheme that opens the Android app.';
comment on column app_configs.fallback_url is 'Destination of links that have no fallback URL of their own.';
comment on column app_configs.html_error_pages is 'Whether a browser that opens a dead short URL gets a page instead of JSON.';
comment on column app_configs.updated_at is 'When the app config was last written.';

comment on table domains is 'Hosts of short URLs: one row per organization for the shared host, and one per custom domain.';
comment on column domains.id is 'UUIDv7.';
comment on column domains.organization_id is 'The organization that added the domain.';
comment on column domains.status is 'pending until the TXT record was found. Only links of verified domains resolve.';
comment on column domains.verification_token is 'Value expected in the TXT record _deeplink.{host}.';
comment on column domains.created_at is 'When the domain was added.';

comment on table domain_transfers is 'Claims to hosts that another organization has verified. A row exists from the proof of the claim, while the TXT record of the owner is missing, until the host moves, the owner''s record is back, or the claim''s record is missing.';
comment on column domain_transfers.host is 'The claimed host.';
comment on column domain_transfers.started_at is 'When the waiting period started.';
comment on column domain_transfers.check_at is 'When control next reads the TXT records of the host. A control moves it forward before it reads.';

comment on column api_keys.id is 'UUIDv7.';
comment on column api_keys.organization_id is 'The organization to which the key gives access.';
comment on column api_keys.tier is 'SERVER for backends, CLIENT for mobile SDKs.';
comment on column api_keys.hash is 'SHA-256 of the raw key. The raw key is not stored.';
comment on column api_keys.valid_until is 'End of the grace period of a replaced key. Null: the current key.';
comment on column api_keys.created_at is 'When the key was issued.';

comment on table links is 'A short URL and its destination.';
comment on column links.id is 'UUIDv7.';
comment on column links.organization_id is 'The organization that owns the link. It never changes.';
comment on column links.domain_id is 'The domain of the short URL; it belongs to the same organization.';
comment on column links.short_code is 'Last segment of the short URL: shown as sent, compared in lower case.';
comment on column links.path is 'Destination in the app.';
comment on column links.channel is 'Channel of the campaign, one of a fixed list.';
comment on column links.utm_source is 'utm_source, added to the fallback URL.';
comment on column links.utm_medium is 'utm_medium, added to the fallback URL.';
comment on column links.utm_campaign is 'utm_campaign, added to the fallback URL.';
comment on column links.utm_term is 'utm_term, added to the fallback URL.';
comment on column links.utm_content is 'utm_content, added to the fallback URL.';
comment on column links.fallback_url is 'Destination on the web. Null: that of the app config.';
comment on column links.og_title is 'Open Graph title of the preview.';
comment on column links.og_description is 'Open Graph description of the preview.';
comment on column links.og_image_url is 'Open Graph image of the preview.';
comment on column links.title is 'Name for the organization''s own people; never public.';
comment on column links.tags is 'Labels for the organization''s own people; never public.';
comment on column links.expiry is 'From this time on, edges respond with 410. Null: never.';
comment on column links.template_id is 'The client''s reference to a template.';
comment on column links.params is 'JSON object as sent. The type is json, not jsonb, so that numbers and order stay as sent.';
comment on column links.is_active is 'False: edges respond with 410.';
comment on column links.version is 'Incremented by every write (trigger).';
comment on column links.created_at is 'When the link was created.';
comment on column links.updated_at is 'When the link was last written (trigger).';

comment on table link_usage is 'Number of links that each organization has. A trigger updates it in the transaction of the links; writers that check the quota lock the row. It is separate from organizations, because a change there voids the organization''s entries at every edge.';
comment on column link_usage.organization_id is 'The organization.';
comment on column link_usage.links is 'Number of links that exist.';

comment on table changes is 'What edges must no longer serve: one row per changing statement, written by triggers alone. Every edge reads it as a window of transactions. Control deletes a row when a snapshot ten minutes old sees its transaction.';
comment on column changes.id is 'Number of the row. Edges do not rely on its order, because transactions commit out of order.';
comment on column changes.xid is 'Transaction of the change.';
comment on column changes.created_at is 'When the row was written, within the transaction.';

comment on table deleted_links is 'Links deleted within the last minutes. A call that reports one of them as gone waits for the same edges as the deletion. Purged with changes.';
comment on column deleted_links.id is 'Id of the link.';
comment on column deleted_links.organization_id is 'Organization of the link.';
comment on column deleted_links.xid is 'Transaction of the deletion.';
comment on column deleted_links.external_id is 'External id of the link, if it had one.';

comment on table edges is 'Edges that may serve from their caches. A row is committed before its edge takes the first lease, and deleted after the edge gave up its last one.';
comment on column edges.slot is 'Name under which the edge is registered. At most one process holds it.';
comment on column edges.incarnation is 'Process that holds the slot.';
comment on column edges.renewals is 'Incremented by every poll. A row that has not moved for hold_ms gives no right to serve.';
comment on column edges.lease_ms is 'How long after the start of a poll the edge may serve from its cache, in milliseconds.';
comment on column edges.hold_ms is 'lease_ms plus the time for which the edge may continue while Postgres is unreachable, in milliseconds.';
comment on column edges.applied is 'Snapshot whose changes the edge has applied. Null: before its first poll.';
comment on column edges.address is 'Host and port at which control''s canary reaches this edge directly, past any load balancer. Null: unknown.';
comment on column edges.release is 'Release of the edge''s program, for control doctor. Null: unknown.';

comment on table match_redemptions is 'Spent match tokens. The insert of a token''s row is its redemption. Control deletes the row after the token would have expired.';
comment on column match_redemptions.nonce is 'Nonce of the token.';
comment on column match_redemptions.link_id is 'Link of the token.';
comment on column match_redemptions.device_id is 'Device that redeemed the token, as sent. Null: not sent.';
comment on column match_redemptions.matched_at is 'When the token was redeemed.';

comment on table audit_log is 'Changes and their actors: one row per change, written in its transaction. One partition per month (UTC), named audit_log_YYYYMM, and one for all entries from before. Control creates partitions ahead and drops each when its last entry is 400 days old. There are no foreign keys: an entry outlives its subject, and inserts wait for no lock.';
comment on column audit_log.id is 'UUIDv7.';
comment on column audit_log.at is 'When the change was made.';
comment on column audit_log.organization_id is 'Organization whose data changed. All zeros: a change that concerns every organization.';
comment on column audit_log.actor_type is 'Kind of actor.';
comment on column audit_log.actor_id is 'Subject of a session token, id of an API key, name of an operator or of a background job. Null: the token had no subject.';
comment on column audit_log.actor_display_key is 'API key as shown to people: prefix, ellipsis and last four characters.';
comment on column audit_log.action is 'Kind of change, such as link.update.';
comment on column audit_log.target_type is 'Kind of object that changed.';
comment on column audit_log.target_id is 'Id of the object that changed.';
comment on column audit_log.ip is 'Full address of the client, kept as long as the row. Null: an operator''s command.';
comment on column audit_log.detail is 'What the action does not say. It never holds a credential, content of a link, or data that identifies a user of an app.';

comment on table devices is 'Phones and browsers of an organization, by the id that the SDK generated. Writers lock the row, which orders what is stored about a device. Deleted when unused for DEVICES_RETENTION.';
comment on column devices.organization_id is 'Organization of the app.';
comment on column devices.id is 'Generated by the SDK; the same for as long as the app is installed.';
comment on column devices.user_id is 'User of the device, from POST /sdk/identity until it is cleared.';
comment on column devices.platform is 'As last sent, like the columns up to timezone. Null: never sent.';
comment on column devices.os_version is 'As last sent.';
comment on column devices.app_version is 'As last sent.';
comment on column devices.sdk_version is 'As last sent.';
comment on column devices.model is 'As last sent.';
comment on column devices.locale is 'As last sent.';
comment on column devices.timezone is 'As last sent.';
comment on column devices.session_id is 'Latest session. Null: none yet. It continues for as long as the device is active within 30 minutes.';
comment on column devices.session_started_at is 'When the latest session started.';
comment on column devices.session_active_at is 'When the device last requested its session or sent an event of it.';
comment on column devices.identified_at is 'When the user was last set or cleared. Null: never, or before this column existed.';
comment on column devices.created_at is 'When the device was first seen.';

comment on table identities is 'Users that an app of the organization has identified. The service does not read it; it is for operators. Deleted when the user was not identified for DEVICES_RETENTION and no device has the user.';
comment on column identities.organization_id is 'Organization of the app.';
comment on column identities.user_id is 'Id of the user in the app.';
comment on column identities.traits is 'JSON object as last sent.';
comment on column identities.created_at is 'When the user was first identified.';
comment on column identities.updated_at is 'When the user was last identified.';

comment on table sessions is 'Sessions of devices, kept as long as events. The service does not read it; it is for operators.';
comment on column sessions.id is 'UUIDv7.';
comment on column sessions.organization_id is 'Organization of the app.';
comment on column sessions.platform is 'That of the device when the session started, like app_version.';
comment on column sessions.app_version is 'That of the device when the session started.';
comment on column sessions.started_at is 'When the session started.';
comment on column sessions.active_at is 'When the app last requested this session. Later activity from events is in devices.';

comment on table events is 'Events that apps sent, one partition per day (UTC) of arrival, named events_YYYYMMDD. Control creates partitions ahead and drops them after EVENTS_RETENTION.';
comment on column events.organization_id is 'Organization of the app.';
comment on column events.id is 'From the app, otherwise generated by control.';
comment on column events.device_id is 'As sent; such a device need not exist. Empty: erased.';
comment on column events.user_id is 'User of the device when the event arrived.';
comment on column events.link_id is 'As sent; such a link need not exist.';
comment on column events.session_id is 'As sent; such a session need not exist.';
comment on column events.revenue is 'As sent, rounded to six decimals, in currency. Negative for a refund.';
comment on column events.currency is 'ISO 4217 form, in capitals. The service does not check that the currency exists.';
comment on column events.properties is 'JSON object as sent, without whitespace.';
comment on column events.occurred_at is 'By the clock of the device, unless that clock was implausible.';
comment on column events.claimed_at is 'Time by the clock of the device, if it was implausible. Otherwise null.';
comment on column events.received_at is 'When the event arrived, by the clock of Postgres. It decides the partition.';

comment on table event_ids is 'Ids of the events of the last 31 days, for as long as a phone may send an event again. Its primary key covers all partitions of events: the insert of an id here decides whether the event is stored.';
comment on column event_ids.organization_id is 'Organization of the event.';
comment on column event_ids.id is 'Id of the event.';

comment on column idempotency_keys.organization_id is 'Organization of the request.';
comment on column idempotency_keys.status is 'Stored status of the response.';
comment on column idempotency_keys.body is 'Stored body of the response.';
comment on column idempotency_keys.created_at is 'When the request was carried out. The key expires 24 hours later.';

comment on column signing_keys.name is 'What the key signs.';
comment on column signing_keys.key is 'The key. Control generates it once; all controls share it.';

comment on column console_sessions.organization_id is 'Chosen organization. Null: none chosen yet.';
comment on column console_sessions.via is 'provider: signed in with the identity provider. link: with a console link.';
comment on column console_sessions.issuer is 'Issuer of the ID token. Null: a link session.';
comment on column console_sessions.subject is 'Subject of the ID token. Null: a link session.';
comment on column console_sessions.name is 'Name from the ID token.';
comment on column console_sessions.email is 'Email address from the ID token.';
comment on column console_sessions.role is 'Role in the chosen organization. Empty: none.';
comment on column console_sessions.token_lifetime is 'Lifetime of the latest judged token, which decides when control renews it.';
comment on column console_sessions.lease_until is 'End of the renewal''s lease. Null: no renewal is running.';
comment on column console_sessions.created_at is 'When the person signed in.';
comment on column console_sessions.ends_at is 'When the session ends in any case.';
comment on column console_sessions.ip is 'Address of the browser at sign-in.';
comment on column console_sessions.user_agent is 'First 256 characters of the User-Agent at sign-in.';

comment on column console_sign_ins.created_at is 'When the attempt started. It is valid for 10 minutes.';

comment on column console_links.id is 'UUIDv7.';
comment on column console_links.organization_id is 'Organization to which the link signs in.';
comment on column console_links.role is 'Role of the session.';
comment on column console_links.operator is 'Operator who created the link.';
comment on column console_links.created_at is 'When the link was created.';
comment on column console_links.expires_at is 'When the link expires.';
comment on column console_links.spent_at is 'When the link was used. Null: not yet.';

comment on column click_logs.state is 'See the type click_log_state.';
comment on column click_batches.log is 'Log of the batch.';
comment on column click_as_of.singleton is 'True; the primary key that keeps the table at one row.';

comment on function record_change(text[], text[]) is 'Writes a row of changes with these tags: keys, or the organizations instead if there are too many keys.';
comment on function links_changed() is 'Trigger: writes the changes of links, and remembers deleted ones.';
comment on function links_before_insert() is 'Trigger: sets version, times and transaction of a new link.';
comment on function links_before_update() is 'Trigger: increments the version, sets the time, and marks updates of what edges serve.';
comment on function links_count() is 'Trigger: updates link_usage.';
comment on function domains_changed() is 'Trigger: writes the changes of domains.';
comment on function organizations_changed() is 'Trigger: writes the changes of organizations.';
comment on function app_configs_changed() is 'Trigger: writes the changes of app configs.';
comment on function everything_changed() is 'Trigger of truncate: writes the change that voids every entry of every edge.';
comment on function tend_search_indexes() is 'Moves pending entries of the search indexes of links into their trees. False: another process does so at the moment.';
comment on function make_event_partitions(integer) is 'Creates the missing partitions of today and of that many days ahead (UTC). Returns how many it created.';
comment on function make_audit_partitions(integer) is 'Creates the missing partitions of the audit trail for this month and that many months ahead (UTC). Returns how many it created.';
comment on function purge_audit_log() is 'Drops one partition of the audit trail whose last entry is older than 400 days, or deletes such entries from a portion of the first partition. Returns the number of rows or partitions. Fails with 55P03 while a transaction reads the partition.';
comment on function drop_event_partitions(interval) is 'Drops the oldest partition if its last event is older than the interval. Returns the number of dropped partitions, 1 or 0. Fails with 55P03 while a transaction reads the partition.';
comment on function purge_audit_entries(tid, tid) is 'Deletes entries older than 400 days from the first partition of the audit trail, from the first place (inclusive) to the second. Returns their number and the number of pages of that partition; 0 pages: there is no such partition.';
comment on function open_transactions(interval) is 'Transactions of the server that have been open for at least this long, oldest first. pid 0: a prepared transaction.';
comment on function hidden_sessions() is 'Number of sessions that open_transactions cannot see, because the owner of this function is not a member of pg_read_all_stats.';
comment on index devices_user is 'Finds the devices of a user in order to delete them, and whether an identity is in use.';
