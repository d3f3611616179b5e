"""Tables and figures as plain values: papers return them, the report draws them. No matplotlib."""
