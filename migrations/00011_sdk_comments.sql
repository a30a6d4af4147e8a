-- +goose Up
-- Descriptions of the columns of 00009_sdk.sql. The service itself does not read many of them: operators use them to count visits and to
-- find a device or a user.
comment on column devices.id is 'As the SDK of the app made it; the same as long as the app is installed.';
comment on column devices.platform is 'As told last, like the columns up to timezone; null: never told.';
comment on column devices.session_started_at is 'When the latest session began.';
comment on column devices.session_active_at is 'When the device last asked for its session or reported an event of it.';

comment on table identities is 'Users whom an app of the organization has named, on whatever device. The service reads nothing of it: it is for operators.';
comment on column identities.user_id is 'As the app knows the user.';
comment on column identities.created_at is 'When the user was first named.';
comment on column identities.updated_at is 'When the user was last named.';

comment on table sessions is 'Visits of devices. Kept as long as events. The service reads nothing of it: it is for operators.';
comment on column sessions.device_id is 'The device, in devices.';
comment on column sessions.is_first is 'Whether it is the first session of the device.';
comment on column sessions.platform is 'That of the device when the session began, like app_version.';

comment on column events.id is 'Made by the app, or where it made none by control.';
comment on column events.device_id is 'As sent; there need be no such device.';
comment on column events.name is 'As sent.';
comment on column events.revenue is 'As sent, rounded to six decimals, in currency. Negative for what is paid back.';
comment on column events.currency is 'ISO 4217, in capitals. Nobody looked whether there is such a one.';
comment on column events.properties is 'JSON object as sent, without its white space.';
comment on column events.received_at is 'When it arrived, by the clock of the database. It decides the partition.';

comment on column event_ids.received_at is 'When the event arrived.';

comment on function make_event_partitions(integer) is 'Makes the partitions of today and so many days ahead (UTC), as far as they are not there, and returns how many it made.';
comment on function drop_event_partitions(interval) is 'Drops the partitions whose last event is older than that, and returns how many. It gives up when somebody reads them (55P03).';

-- +goose Down
select 1;
