"""What other numbers of devices would bring, predicted from those that were measured."""
