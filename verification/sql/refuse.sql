-- Makes each UPDATE of go_tasks to :status an SQL error. The server's log then tells when each try was made.
CREATE FUNCTION :name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'experiment refuses % of % at %', NEW.status, NEW.id, extract(epoch FROM clock_timestamp());
END $$;
CREATE TRIGGER :name BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = :'status') EXECUTE FUNCTION :name();
